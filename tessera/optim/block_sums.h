#pragma once
/// \file
/// kernels::block_squares for what has no kernel: doubles, and tensors on other devices. The same order of additions.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::optim {

/// Sums of squares of the blocks of 64 of n doubles (squares are rounded).
void block_squares(const double* x, std::int64_t n, double* sums);
/// The same of a contiguous floating-point tensor on any device: [blocks] float64 there. Needs about 32 times less
/// memory than the tensor, and 64 MiB for squares in passing.
at::Tensor block_squares_of(const at::Tensor& x);

}  // namespace tessera::optim
