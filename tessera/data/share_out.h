#pragma once
/// \file
/// Independent pieces of work on several threads.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <thread>
#include <vector>

namespace tessera::data {

/// Calls work(i) for every i in [0, count), shared out among `threads` threads, this one included. When some throw, the
/// error of the least such i is thrown, after all have ended.
template <class Work>
void share_out(std::size_t count, int threads, const Work& work) {
  std::vector<std::exception_ptr> errors(count);
  std::atomic<std::size_t> next = 0;
  const auto take = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        work(i);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < std::min(count, static_cast<std::size_t>(std::max(threads, 1))); ++i)
      others.emplace_back(take);
    take();
  }
  for (const auto& error : errors)
    if (error) std::rethrow_exception(error);
}

}  // namespace tessera::data
