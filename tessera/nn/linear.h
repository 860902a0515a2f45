#pragma once
/// \file
/// The linear map, with weights stored either way.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// How a weight is stored: torch.nn.Linear has [out, in], GPT-2's Conv1D [in, out].
enum class WeightLayout { in_out, out_in };

/// x W + b: x [..., in], bias [out] or undefined. Returns [..., out]. The gradient of the weight has the weight's
/// layout. Leave the bias out where the next operation adds it in its own pass (bias_gelu, add_layer_norm, add_bias).
/// Under autocast to bf16 the products run in bf16 with fp32 accumulation and the result is bf16; gradients of an fp32
/// weight are fp32.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout = WeightLayout::in_out);

/// x + (delta + bias), the end of a residual branch: x, delta [..., C], bias [C] or undefined.
at::Tensor add_bias(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias);

}  // namespace tessera::nn
