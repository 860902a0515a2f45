#pragma once
/// \file
/// How the process's memory behaves while training.

namespace tessera::nn {

/// Keeps freed memory in the process. glibc gives every block above its mmap threshold (at most 32 MB) back to the system when
/// it is freed, so a training step that allocates the same large tensors again and again touches all their pages anew: 0.7 GB/s,
/// slower than the arithmetic on them. After this call large blocks come from the heap, which does not shrink.
/// Call once at start-up, before large tensors exist; affects the whole process. Does nothing where the C library is not glibc.
void keep_memory();

}  // namespace tessera::nn
