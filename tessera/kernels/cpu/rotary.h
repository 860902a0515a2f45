#pragma once
/// \file
/// Rotary position embedding (Su et al. 2021) in Hugging Face's half-split layout.

#include <cstdint>

namespace tessera::kernels {

/// For every token and head, with h = size / 2 and i < h:
///   y[i] = x[i] cos[i] - x[i + h] sin[i],  y[i + h] = x[i + h] cos[i] + x[i] sin[i]
/// (rotate_half of modeling_llama.py). Token t, head k of x is at x + t * x_stride + k * size, of y at y + t * y_stride
/// + k * size; cos and sin of token t are at + (t % period) * h. y may be x. `direction` -1 rotates backwards, which
/// gives the gradient.
struct Rotary {
  const float *x, *cos, *sin;
  float* y;
  std::int64_t x_stride, y_stride, period;
  float direction;
};
/// Tokens [first, end).
void rotary(const Rotary& a, std::int64_t first, std::int64_t end, std::int64_t heads, std::int64_t size);

}  // namespace tessera::kernels
