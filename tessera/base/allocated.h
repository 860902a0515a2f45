#pragma once
/// \file
/// Bytes that this process's tensors have requested, which a plan can predict exactly. Resident memory is larger: it
/// includes the program, the allocators' caches and pages of peers.

#include <cstdint>

namespace tessera {

/// Bytes requested and not yet freed, and their peak.
struct AllocatedMemory {
  std::int64_t now = 0, peak = 0;
};

/// Reports that an allocator gave a tensor `bytes` bytes, or freed them if negative. Two atomic operations; any thread.
void count_allocated(std::int64_t bytes);

/// Totals since the process started. `peak` is the largest `now` after any call of count_allocated().
AllocatedMemory allocated_memory();

}  // namespace tessera
