#pragma once
/// \file
/// One Adagrad update over a range of elements, in one pass.

#include <cstdint>

namespace tessera::kernels {

/// Names and meaning as in torch.optim.Adagrad; the learning rate must already include its decay.
struct AdagradArgs {
  double learning_rate = 1e-2;
  double epsilon = 1e-10;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< factor by which every gradient is first multiplied (clipping)
};

/// Adagrad as computed by _single_tensor_adagrad of torch/optim/adagrad.py, on n elements:
///   g += wd * p;  s += g * g;  p -= lr * g / (sqrt(s) + eps)
/// Elementwise, so results are bitwise identical wherever the range is cut.
void adagrad(float* p, const float* g, float* s, std::int64_t n, const AdagradArgs& args);

}  // namespace tessera::kernels
