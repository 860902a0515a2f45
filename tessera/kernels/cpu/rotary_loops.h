#pragma once
/// \file
/// rotary.h over F32. Included by loops.h inside the anonymous namespace of a table.

#include <tessera/kernels/cpu/for_vectors.h>

void rotary_loop(const Rotary& a, std::int64_t first, std::int64_t end, std::int64_t heads, std::int64_t size) {
  const std::int64_t half = size / 2;
  const F32 direction = F32::of(a.direction);
  for (std::int64_t t = first; t < end; ++t) {
    const float *cos = a.cos + t % a.period * half, *sin = a.sin + t % a.period * half;
    for (std::int64_t k = 0; k < heads; ++k) {
      const float* x = a.x + t * a.x_stride + k * size;
      float* y = a.y + t * a.y_stride + k * size;
      for_vectors(half, [&](std::int64_t i, int lanes) {
        const F32 c = F32::load(cos + i, lanes), s = F32::load(sin + i, lanes) * direction;
        const F32 low = F32::load(x + i, lanes), high = F32::load(x + half + i, lanes);
        (low * c - high * s).store(y + i, lanes);
        fma(low, s, high * c).store(y + half + i, lanes);
      });
    }
  }
}
