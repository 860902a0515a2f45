#pragma once
/// \file
/// kernels::block_squares for data without a kernel (doubles, and tensors on other devices), with the same order of
/// additions.

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace tessera::optim {

/// Sums of squares of n doubles, per block of 64 (squares are rounded).
void block_squares(const double* x, std::int64_t n, double* sums);
/// The same for a contiguous floating-point tensor on any device; returns [blocks] float64 on that device. Needs about
/// 1/32 of the tensor's memory, plus 64 MiB of temporary squares.
at::Tensor block_squares_of(const at::Tensor& x);

}  // namespace tessera::optim
