#pragma once
/// \file
/// Memory allocation of this process's CPU tensors.

#include <tessera/base/error.h>

#include <cstdint>

namespace tessera::nn {

/// Makes LibTorch's CPU tensors of 128 KB and more use a cache of blocks that are kept when they are freed. Without it
/// glibc returns large blocks to the system, and a training step that keeps allocating the same tensors faults in all
/// of their pages again: 0.7 GB/s, slower than the arithmetic on them. (Raising glibc's own thresholds does not help:
/// its aligned allocation cannot reuse a freed block of exactly the same size, and the heap grows instead.)
///
/// Blocks are whole pages in size classes one eighth apart; from 2 MB on they are aligned and offered to the kernel as
/// huge pages. A request that finds no block first returns the unused ones when they exceed the blocks in use (and 256
/// MB), or when the system has no more memory. Requested bytes are counted (base/allocated.h), small requests as
/// rounded by the heap. Call once at start-up; later calls do nothing. Existing tensors keep their memory. Thread-safe.
void keep_memory();

/// Returns the unused blocks to the system, for uses other than tensors. Thread-safe.
void release_unused_memory();

/// Thrown when the system has no memory for a tensor.
class OutOfMemory : public Error {
 public:
  using Error::Error;
};

/// Bytes of blocks in tensors and of unused blocks, since keep_memory().
struct KeptMemory {
  std::int64_t in_use, unused;
};
KeptMemory kept_memory();

}  // namespace tessera::nn
