#pragma once
/// \file
/// The exact sum of the squares of gradients, from which a norm is computed, bitwise the same as on the CPU.

#include <tessera/kernels/cpu/exact_words.h>
#include <tessera/kernels/cuda/reals.h>

#include <cstdint>
#include <span>

namespace tessera::kernels::cuda {

/// The elements of a gradient, or of a piece of one that starts at a multiple of kernels::square_block in its
/// parameter.
struct SquareRange {
  const void* data;  ///< on the device
  std::int64_t numel;
};

/// Adds the sums of squares of blocks of 64 elements (in the order of additions of kernels::block_squares,
/// kernels/cpu/block_squares.h) to `words` [exact_words] on the device, without rounding. The words are integers, so
/// the order of blocks does not matter. At most 2^30 blocks may be added between two carries. Runs on `stream` (a
/// cudaStream_t); returns before the work is done. Throws std::runtime_error with CUDA's message when a launch fails.
void add_exact_squares(std::span<const SquareRange> ranges, Real type, std::int64_t* words, void* stream);

}  // namespace tessera::kernels::cuda
