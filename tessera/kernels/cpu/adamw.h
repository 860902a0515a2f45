#pragma once
/// \file
/// One Adam or AdamW update over a range of elements, in one pass.

#include <tessera/kernels/cpu/bf16_rounding.h>

#include <cstdint>

namespace tessera::kernels {

/// Names and meaning as in torch.optim.AdamW.
struct AdamwArgs {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;
  double gradient_scale = 1;       ///< factor by which every gradient is first multiplied (clipping)
  std::int64_t step = 1;           ///< number of this update, from 1 (bias correction)
  bool decay_in_gradient = false;  ///< true: Adam (g += wd * p instead of p *= 1 - lr * wd)
};

/// AdamW (Loshchilov & Hutter 2019) as computed by _single_tensor_adam of torch/optim/adam.py, on n elements:
///   p *= 1 - lr * wd;  m += (g - m) * (1 - beta1);  v = v * beta2 + (1 - beta2) * g * g
///   p -= lr / (1 - beta1^t) * m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
/// p, m, v are updated in place; none of the four ranges overlap. Elementwise, so results are bitwise identical
/// wherever the range is cut.
void adamw(float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& args);
/// The same with averages in bfloat16. p is updated with the averages before they are rounded.
void adamw_bf16(float* p, const float* g, std::uint16_t* m, std::uint16_t* v, std::int64_t n, const AdamwArgs& args,
                const Bf16Rounding& rounding);

}  // namespace tessera::kernels
