#pragma once
/// \file
/// Rotary position embedding: kernels::rotary (see kernels/cpu/rotary.h for the formula and its source) on a device,
/// with elements of either type.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// Token t, head k of x is at x + t * x_stride + k * size (x_stride in numbers), of y, contiguous, at y + (t * heads +
/// k) * size; cos and sin, fp32, of token t are at + (t % period) * size / 2. y may be x if x is contiguous and of y's
/// type. `direction` -1 rotates backwards, which gives the gradient.
struct Rotary {
  ConstReals x = {};
  const float *cos = nullptr, *sin = nullptr;
  Reals y = {};
  std::int64_t x_stride = 0, period = 0;
  float direction = 1;
};
/// `size` must be even. Returns before the work is done, on `stream` (a cudaStream_t). Throws std::runtime_error with
/// CUDA's message when the launch fails.
void rotary(const Rotary& a, std::int64_t tokens, std::int64_t heads, std::int64_t size, void* stream);

}  // namespace tessera::kernels::cuda
