#pragma once
/// \file
/// Residual addition and layer normalisation in one pass, forward and backward.

#include <cstdint>

namespace tessera::kernels {

/// sum = x + delta + delta_bias, y = (sum - mean) * rstd * weight + bias, rstd = 1 / sqrt(var + eps), var over
/// `columns`. x, delta, sum, y [rows, columns]; delta_bias, weight, bias [columns]; mean, rstd [rows]. delta and
/// delta_bias may be null; sum may be null if delta is null (there is nothing to add), or equal to x or delta.
struct LayerNormForward {
  const float *x, *delta, *delta_bias, *weight, *bias;
  double eps;
  float *sum, *y, *mean, *rstd;
};
void layer_norm(const LayerNormForward& a, std::int64_t rows, std::int64_t columns);

/// g = dy * weight, n = (sum - mean) * rstd:
///   dx = dsum + rstd * (g - average(g) - n * average(g n))
///   dweight += sum of dy n;  dbias += sum of dy;  ddelta_bias += sum of dx
/// sum, dy, dsum, dx [rows, columns]; dsum (the residual stream's gradient of the sum) and ddelta_bias may be null; dx
/// may be dy or dsum. The three column sums are added to existing values.
struct LayerNormBackward {
  const float *sum, *dy, *dsum, *weight, *mean, *rstd;
  float *dx, *dweight, *dbias, *ddelta_bias;
};
void layer_norm_backward(const LayerNormBackward& a, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels
