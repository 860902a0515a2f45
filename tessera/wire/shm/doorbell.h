#pragma once
/// \file
/// Wakes processes that wait on shared memory: a counter that every change increments, and a futex for sleepers. Stored
/// in shared memory; initially all zero.

#include <atomic>
#include <chrono>
#include <cstdint>

namespace tessera::wire::shm {

struct alignas(64) Doorbell {
  std::atomic<std::uint32_t> count;     ///< changes so far
  std::atomic<std::uint32_t> sleepers;  ///< threads inside sleep(), plus one for each process killed there

  /// Call after the change is stored. Makes a system call only if a thread sleeps.
  void ring();
  /// Sleeps until `count` differs from `seen`, at most `limit`. To lose no change, read count, then check the
  /// condition, then sleep.
  void sleep(std::uint32_t seen, std::chrono::nanoseconds limit);
};

/// One iteration of a spin loop.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("isb");  // YIELD does nothing on most processors; this waits a few cycles
#endif
}

/// Makes earlier non-temporal stores visible before the release store that follows, which orders all other stores. Only
/// x86-64 needs this; the ARM kernels have no non-temporal stores (kernels/cpu/isa/stream_plain.h).
inline void publish_stores() {
#if defined(__x86_64__)
  __builtin_ia32_sfence();
#endif
}

}  // namespace tessera::wire::shm
