#pragma once
/// \file
/// The linear map of GPT-2's Conv1D: weights are stored [in, out].

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// x W + b: x [..., in], weight [in, out], bias [out] or undefined. Returns [..., out].
/// Leave the bias out where the next operation adds it in its own pass (bias_gelu, add_layer_norm, add_bias).
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias);

/// x + (delta + bias), the end of a residual branch: x, delta [..., C], bias [C] or undefined.
at::Tensor add_bias(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias);

}  // namespace tessera::nn
