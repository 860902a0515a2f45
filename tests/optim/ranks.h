#pragma once
/// \file
/// Ranks as threads: each holds pieces of the same parameters and sums numbers with the others.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/optim/optimizer.h>

#include <algorithm>
#include <barrier>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ranks {

/// Shared by the ranks: sums vectors over all of them in the order of arrival.
class Meeting {
 public:
  explicit Meeting(int ranks) : barrier_(ranks) {}

  template <class T>
  void sum(std::vector<T>& values, std::vector<T>& shared) {
    {
      const std::lock_guard lock(mutex_);
      shared.resize(values.size());
      for (std::size_t i = 0; i < values.size(); ++i) shared[i] += values[i];
    }
    barrier_.arrive_and_wait();
    values = shared;
    barrier_.arrive_and_wait();
    {
      const std::lock_guard lock(mutex_);
      shared.clear();
    }
    barrier_.arrive_and_wait();
  }
  void sum_doubles(std::vector<double>& values) { sum(values, doubles_); }
  void sum_words(std::vector<std::int64_t>& values) { sum(values, words_); }

 private:
  std::barrier<> barrier_;
  std::mutex mutex_;
  std::vector<double> doubles_;
  std::vector<std::int64_t> words_;
};

/// Runs body(rank, meeting) on `count` threads; rethrows the first error.
inline void run(int count, const std::function<void(int, Meeting&)>& body) {
  Meeting meeting(count);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(count));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < count; ++rank)
    threads.emplace_back([&, rank] {
      at::set_num_threads(1);  // the setting is per thread
      try {
        body(rank, meeting);
      } catch (...) {
        errors[static_cast<std::size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const std::exception_ptr& error : errors)
    if (error) std::rethrow_exception(error);
}

/// Elements [begin, end) of a parameter.
struct Piece {
  std::int64_t begin, end;
};
/// cuts[i]: ascending positions at which parameter i is cut, one fewer than there are ranks. Returns rank `rank`'s
/// piece.
inline Piece piece_of(const std::vector<std::int64_t>& cuts, std::int64_t numel, int rank) {
  const auto at = [&](int i) {
    return i < 0 ? 0 : i >= static_cast<int>(cuts.size()) ? numel : std::min(cuts[static_cast<std::size_t>(i)], numel);
  };
  return {at(rank - 1), at(rank)};
}

}  // namespace ranks
