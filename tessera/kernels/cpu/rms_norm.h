#pragma once
/// \file
/// Residual addition and root-mean-square normalisation in one pass, forward and backward.

#include <cstdint>

namespace tessera::kernels {

/// sum = x + delta, y = sum * rstd * weight, rstd = 1 / sqrt(average(sum^2) + eps) (Zhang & Sennrich 2019).
/// x, delta, sum, y [rows, columns]; weight [columns]; rstd [rows]. delta may be null; sum may be null if delta is null
/// (there is nothing to add), or equal to x or delta.
struct RmsNormForward {
  const float *x, *delta, *weight;
  double eps;
  float *sum, *y, *rstd;
};
void rms_norm(const RmsNormForward& a, std::int64_t rows, std::int64_t columns);

/// g = dy * weight, n = sum * rstd:
///   dx = dsum + rstd * (g - n * average(g n));  dweight += sum over rows of dy n
/// sum, dy, dsum, dx [rows, columns]; dsum may be null; dx may be dy or dsum.
struct RmsNormBackward {
  const float *sum, *dy, *dsum, *weight, *rstd;
  float *dx, *dweight;
};
void rms_norm_backward(const RmsNormBackward& a, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels
