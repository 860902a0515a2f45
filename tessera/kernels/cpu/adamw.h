#pragma once
/// \file
/// One AdamW update over a range of elements, in one pass.

#include <cstdint>

namespace tessera::kernels {

/// Names and meaning as torch.optim.AdamW.
struct AdamwArgs {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< every gradient is multiplied by this first (clipping)
  std::int64_t step = 1;      ///< number of this update, from 1 (bias correction)
};

/// AdamW (Loshchilov & Hutter 2019) as torch/optim/adam.py _single_tensor_adam computes it, on n elements:
///   p *= 1 - lr * wd;  m += (g - m) * (1 - beta1);  v = v * beta2 + (1 - beta2) * g * g
///   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// p, m, v are updated in place; none of the four ranges overlap. Element by element: the same bits wherever the range
/// is cut.
void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& args);

}  // namespace tessera::kernels
