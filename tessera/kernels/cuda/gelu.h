#pragma once
/// \file
/// GELU (tanh form) of a biased input, forward and backward: kernels::gelu_tanh (see kernels/cpu/gelu.h for the
/// formula) on a device, with elements of either type.
///
/// x, y, dy, dx [rows, columns], contiguous; bias [columns] or null. Functions return before the work is done, on
/// `stream` (a cudaStream_t), and throw std::runtime_error with CUDA's message when a launch fails. Four elements are
/// read at a time if `columns` and all pointers allow it. If x is bfloat16, exp and the division use the device's fast
/// versions, whose error is far below the rounding error of bfloat16.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// y = gelu(x + bias); y may be x.
void gelu_tanh(ConstReals x, ConstReals bias, Reals y, std::int64_t rows, std::int64_t columns, void* stream);

struct GeluBackward {
  ConstReals x = {}, bias = {}, dy = {};
  Reals dx = {};             ///< dy * gelu'(x + bias); may be dy
  Reals dbias = {};          ///< [columns], written: column sums of dx, in fp32; may be null
  float* partial = nullptr;  ///< scratch of gelu_partial_sums() floats; null if dbias is null
};
void gelu_tanh_backward(const GeluBackward& a, std::int64_t rows, std::int64_t columns, void* stream);

/// Length of GeluBackward::partial, in floats; a function of the shape.
std::int64_t gelu_partial_sums(std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels::cuda
