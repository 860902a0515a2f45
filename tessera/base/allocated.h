#pragma once
/// \file
/// How many bytes the tensors of this process have asked for: what a plan can predict exactly. Resident memory is more:
/// the program, what allocators keep for later, pages of peers.

#include <cstdint>

namespace tessera {

/// Bytes asked for and not given back, and the most that these have been.
struct AllocatedMemory {
  std::int64_t now = 0, peak = 0;
};

/// An allocator gave a tensor so many bytes; negative: it got them back. Two atomic operations; any thread.
void count_allocated(std::int64_t bytes);

/// Since the process started. `peak` is the largest `now` that some call of count_allocated() left behind.
AllocatedMemory allocated_memory();

}  // namespace tessera
