#pragma once
/// \file
/// Soft-capping of scores and logits: cap * tanh(x / cap), in (-cap, cap) (Bello et al. 2017, "Neural Combinatorial
/// Optimization", appendix A.1; Gemma Team 2024, "Gemma 2", section 2). A cap of 0 means none.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// Differentiable; for any shape and floating type.
at::Tensor softcap(const at::Tensor& x, double cap);
/// The same in place, for functions that compute their own gradients.
void softcap_(const at::Tensor& x, double cap);
/// Its derivative by x, computed from the result: 1 - (capped / cap)^2. cap > 0.
at::Tensor softcap_slope(const at::Tensor& capped, double cap);

}  // namespace tessera::nn
