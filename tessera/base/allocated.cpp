#include <tessera/base/allocated.h>

#include <atomic>

namespace tessera {
namespace {

std::atomic<std::int64_t> now = 0, peak = 0;

}  // namespace

void count_allocated(std::int64_t bytes) {
  const std::int64_t after = now.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  std::int64_t most = peak.load(std::memory_order_relaxed);
  while (after > most && !peak.compare_exchange_weak(most, after, std::memory_order_relaxed)) {
  }
}

AllocatedMemory allocated_memory() {
  return {now.load(std::memory_order_relaxed), peak.load(std::memory_order_relaxed)};
}

}  // namespace tessera
