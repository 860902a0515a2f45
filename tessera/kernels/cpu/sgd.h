#pragma once
/// \file
/// One SGD update over a range of elements, in one pass.

#include <cstdint>

namespace tessera::kernels {

/// Names and meaning as torch.optim.SGD (dampening 0).
struct SgdArgs {
  double learning_rate = 1e-3;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< every gradient is multiplied by this first (clipping)
};

/// SGD as torch/optim/sgd.py _single_tensor_sgd computes it, on n elements:
///   g += wd * p;  b = momentum * b + g;  g = nesterov ? g + momentum * b : b;  p -= lr * g
/// Without momentum b is not touched and may be null. Element by element: the same bits wherever the range is cut.
void sgd(float* p, const float* g, float* b, std::int64_t n, const SgdArgs& args);

}  // namespace tessera::kernels
