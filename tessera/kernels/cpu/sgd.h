#pragma once
/// \file
/// One SGD update over a range of elements, in one pass.

#include <tessera/kernels/cpu/bf16_rounding.h>

#include <cstdint>

namespace tessera::kernels {

/// Names and meaning as in torch.optim.SGD (dampening 0).
struct SgdArgs {
  double learning_rate = 1e-3;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< factor by which every gradient is first multiplied (clipping)
};

/// SGD as computed by _single_tensor_sgd of torch/optim/sgd.py, on n elements:
///   g += wd * p;  b = momentum * b + g;  g = nesterov ? g + momentum * b : b;  p -= lr * g
/// Without momentum, b is not used and may be null. Elementwise, so results are bitwise identical wherever the range is
/// cut.
void sgd(float* p, const float* g, float* b, std::int64_t n, const SgdArgs& args);
/// The same with the average in bfloat16 (momentum > 0). p is updated with the average before it is rounded.
void sgd_bf16(float* p, const float* g, std::uint16_t* b, std::int64_t n, const SgdArgs& args,
              const Bf16Rounding& rounding);

}  // namespace tessera::kernels
