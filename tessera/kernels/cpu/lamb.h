#pragma once
/// \file
/// One LAMB update in two passes, because the norm of a whole parameter's direction is known only after the first.

#include <tessera/kernels/cpu/adamw.h>

#include <cstdint>

namespace tessera::kernels {

/// First pass over n elements (You et al. 2020, algorithm 2; args.step = 0: no bias correction):
///   m += (g - m) * (1 - beta1);  v = v * beta2 + (1 - beta2) * g * g
///   u = m / (1 - beta1^t) / (sqrt(v) / sqrt(1 - beta2^t) + eps) + wd * p
/// p_squares and u_squares receive the sums of squares of p and u by blocks of 64 (block_squares.h).
void lamb_moments(const float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& args,
                  double* p_squares, double* u_squares);
/// Second pass: p -= lr * trust_ratio * u, where u is bitwise the same as in the first pass.
void lamb_apply(float* p, const float* m, const float* v, std::int64_t n, const AdamwArgs& args, double trust_ratio);

}  // namespace tessera::kernels
