#pragma once
/// \file
/// One Lion update over a range of elements, in one pass.

#include <tessera/kernels/cpu/bf16_rounding.h>

#include <cstdint>

namespace tessera::kernels {

struct LionArgs {
  double learning_rate = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;
  double gradient_scale = 1;  ///< factor by which every gradient is first multiplied (clipping)
};

/// Lion (Chen et al. 2023, algorithm 2) on n elements:
///   p = p * (1 - lr * wd) - lr * sign(m + (g - m) * (1 - beta1));  m += (g - m) * (1 - beta2)
/// Elementwise, so results are bitwise identical wherever the range is cut.
void lion(float* p, const float* g, float* m, std::int64_t n, const LionArgs& args);
/// The same with the average in bfloat16.
void lion_bf16(float* p, const float* g, std::uint16_t* m, std::int64_t n, const LionArgs& args,
               const Bf16Rounding& rounding);

}  // namespace tessera::kernels
