#pragma once
/// \file
/// GELU (tanh form) of a biased input, forward and backward.

#include <cstdint>

namespace tessera::kernels {

/// y = gelu(x + bias), row by row: x, y [rows, columns] (may be the same), bias [columns] or null.
/// gelu(u) = 0.5 u (1 + tanh(z)) = u / (1 + exp(-2 z)), z = sqrt(2/pi) (u + 0.044715 u^3).
void gelu_tanh(const float* x, const float* bias, float* y, std::int64_t rows, std::int64_t columns);

/// dx = dy * gelu'(x + bias); dbias += column sums of dx (dbias may be null). dx may be dy.
void gelu_tanh_backward(const float* x, const float* bias, const float* dy, float* dx, float* dbias, std::int64_t rows,
                        std::int64_t columns);

}  // namespace tessera::kernels
