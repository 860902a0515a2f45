#pragma once
/// \file
/// swiglu.h over F32. Included by loops.h inside the anonymous namespace of a table.

#include <tessera/kernels/cpu/exp_loops.h>
#include <tessera/kernels/cpu/for_vectors.h>

void swiglu_loop(const float* gate, const float* up, float* y, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) {
    const F32 g = F32::load(gate + i, lanes);
    (g / (F32::of(1) + exp(F32::of(0) - g)) * F32::load(up + i, lanes)).store(y + i, lanes);
  });
}

void swiglu_backward_loop(const float* gate, const float* up, const float* dy, float* dgate, float* dup,
                          std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) {
    const F32 g = F32::load(gate + i, lanes), u = F32::load(up + i, lanes), d = F32::load(dy + i, lanes);
    const F32 sigmoid = F32::of(1) / (F32::of(1) + exp(F32::of(0) - g)), silu = g * sigmoid;
    const F32 slope = fma(silu, F32::of(1) - sigmoid, sigmoid);
    (d * u * slope).store(dgate + i, lanes);
    (d * silu).store(dup + i, lanes);
  });
}
