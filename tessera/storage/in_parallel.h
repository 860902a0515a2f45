#pragma once
/// \file
/// Parallel transfers: one connection rarely saturates a network.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace tessera::storage {

/// Calls act(i) for every i below `count` on up to `threads` threads, in ascending order of start. If a call throws, no
/// more calls are started, and the first exception is rethrown here after all threads have ended.
inline void in_parallel(std::size_t count, int threads, const std::function<void(std::size_t)>& act) {
  std::atomic<std::size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr first;
  const auto work = [&] {
    for (std::size_t i = next++; i < count; i = next++) {
      try {
        act(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!first) first = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> pool;
    const std::size_t others = std::min(count, static_cast<std::size_t>(threads > 1 ? threads : 1));
    for (std::size_t t = 1; t < others; ++t) pool.emplace_back(work);
    work();
  }
  if (first) std::rethrow_exception(first);
}

}  // namespace tessera::storage
