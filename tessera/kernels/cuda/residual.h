#pragma once
/// \file
/// The end of a residual branch, x + (delta + bias), forward and backward, with elements of either type.
///
/// x, delta, y, dy, dx, ddelta [rows, columns], contiguous; bias [columns] or null. Functions return before the work is
/// done, on `stream` (a cudaStream_t), and throw std::runtime_error with CUDA's message when a launch fails. Four
/// elements are read at a time if `columns` and all pointers allow it.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// y = x + (delta + bias), in fp32; y may be x or delta if it has the same type.
struct Residual {
  ConstReals x = {}, delta = {}, bias = {};
  Reals y = {};
};
void add_residual(const Residual& a, std::int64_t rows, std::int64_t columns, void* stream);

/// ddelta is dy in ddelta's type; dbias are the column sums of dy in fp32.
struct ResidualBackward {
  ConstReals dy = {};
  Reals ddelta = {};         ///< may be null
  Reals dbias = {};          ///< [columns], written; may be null
  float* partial = nullptr;  ///< scratch of residual_partial_sums() floats; null if dbias is null
};
void add_residual_backward(const ResidualBackward& a, std::int64_t rows, std::int64_t columns, void* stream);

/// Length of ResidualBackward::partial, in floats; a function of the shape.
std::int64_t residual_partial_sums(std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels::cuda
