#pragma once
/// \file
/// How processes that share memory wait for each other: a counter that is raised at every change, and a futex for those
/// who sleep until it changes. Lies in shared memory; all zero is its first state.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera::wire::shm {

struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> count;     ///< changes so far
  std::atomic<std::uint32_t> sleepers;  ///< threads inside sleep(); one too many per process that was killed there

  /// After the change was stored. A system call only when somebody sleeps.
  void ring();
  /// Sleeps until `count` differs from `seen`, at most `limit`. The caller reads count, then looks whether what it
  /// waits for has happened, then sleeps: a change in between is not lost.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit);
};

/// One turn of a spinning loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // YIELD does nothing on most processors; this one waits for some cycles
#endif
}

/// Non-temporal stores before it are visible before the release store that follows (which orders all others). Only
/// x86-64's are outside of that order; kernels have none for ARM (kernels/cpu/isa/stream_plain.h).
inline void publish_stores() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace tessera::wire::shm
