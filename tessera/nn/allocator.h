#pragma once
/// \file
/// How tensors of this process get their memory on the CPU.

#include <tessera/base/error.h>

#include <cstdint>

namespace tessera::nn {

/// Makes LibTorch's CPU tensors of 128 KB and more come from a cache of blocks that is kept when they are freed.
/// Without it glibc gives large blocks back to the system, and a training step that allocates the same tensors again
/// and again touches all their pages anew: 0.7 GB/s, slower than the arithmetic on them. (Raising glibc's own
/// thresholds does not help: its aligned allocation cannot take a freed block of the very same size, and the heap grows
/// instead.)
///
/// Blocks are whole pages in size classes an eighth apart; from 2 MB on they are aligned and offered to the kernel as
/// huge pages. A request that finds no block gives the unused ones back first when they exceed what is in use (and 256
/// MB), or when the system has no more. What tensors ask for is counted (base/allocated.h), small ones as the heap
/// rounds them. Call once at start-up; later calls do nothing. Tensors made before keep their memory. Thread-safe.
void keep_memory();

/// Gives the unused blocks back, for whoever needs memory that is not a tensor's. Thread-safe.
void release_unused_memory();

/// The system has no memory for a tensor.
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
