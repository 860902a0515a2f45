#pragma once
/// \file
/// One RMSprop update over a range of elements, in one pass.

#include <cstdint>

namespace tessera::kernels {

/// Names and meaning as in torch.optim.RMSprop.
struct RmspropArgs {
  double learning_rate = 1e-2;
  double alpha = 0.99;  ///< decay of the averages
  double epsilon = 1e-8;
  double momentum = 0;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< factor by which every gradient is first multiplied (clipping)
};

/// RMSprop as computed by _single_tensor_rmsprop of torch/optim/rmsprop.py, on n elements:
///   g += wd * p;  v = alpha * v + (1 - alpha) * g * g
///   a += (1 - alpha) * (g - a);  d = sqrt(v - a * a) + eps     a nullptr: d = sqrt(v) + eps
///   b = momentum * b + g / d;    p -= lr * b                   b nullptr: p -= lr * g / d
/// v: square averages, a: averages of gradients (centered), b: the momentum buffer.
/// Elementwise, so results are bitwise identical wherever the range is cut.
void rmsprop(float* p, const float* g, float* v, float* a, float* b, std::int64_t n, const RmspropArgs& args);

}  // namespace tessera::kernels
