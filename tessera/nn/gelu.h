#pragma once
/// \file
/// GELU of a biased input, tanh form.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// y = 0.5 u (1 + tanh(sqrt(2/pi) (u + 0.044715 u^3))), u = x + bias (Hendrycks & Gimpel 2016; Hugging Face's
/// gelu_new). x [..., F], bias [F] or undefined. On the CPU and on a device y has x's type: an fp32 bias does not widen
/// bf16.
at::Tensor bias_gelu_tanh(const at::Tensor& x, const at::Tensor& bias);

}  // namespace tessera::nn
