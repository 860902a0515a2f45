#pragma once
/// \file
/// The exact sum of the squares of gradients: what a norm is made of, with the bits of the CPU's.

#include <tessera/kernels/cpu/exact_words.h>
#include <tessera/kernels/cuda/reals.h>

#include <cstdint>
#include <span>

namespace tessera::kernels::cuda {

/// Elements of one gradient, or of a piece of one that begins at a multiple of kernels::square_block of its parameter.
struct SquareRange {
  const void* data;  ///< on the device
  std::int64_t numel;
};

/// Adds the sums of squares of blocks of 64 elements (kernels::block_squares, kernels/cpu/block_squares.h: the order of
/// the additions) to `words` [exact_words] on the device, without rounding: integers, so the order of blocks does not
/// matter. Between two carries at most 2^30 blocks may be added. In the order of `stream` (a cudaStream_t); returns
/// before it is done.
/// Throws std::runtime_error with CUDA's words when a launch fails.
void add_exact_squares(std::span<const SquareRange> ranges, Real type, std::int64_t* words, void* stream);

}  // namespace tessera::kernels::cuda
