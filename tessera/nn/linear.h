#pragma once
/// \file
/// The linear map, with weights in either layout.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::nn {

/// How a weight is stored: torch.nn.Linear has [out, in], GPT-2's Conv1D [in, out].
enum class WeightLayout { in_out, out_in };

/// x W + b: x [..., in], bias [out] or undefined. Returns [..., out]. The gradient of the weight has the weight's
/// layout. Omit the bias if the next operation adds it in its own pass (bias_gelu, add_layer_norm, add_bias). Under
/// autocast to bf16 the products run in bf16 with fp32 accumulation and the result is bf16; gradients of an fp32 weight
/// are fp32, also on a CUDA device, where the product's sums are not rounded to bf16.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout = WeightLayout::in_out);

/// The same in `parts` (at most three) pieces of its columns, [..., out / parts] each, which share memory: queries,
/// keys and values of one matrix. Their gradients are joined in one pass, which also computes the bias's. nullopt if no
/// device kernel supports it: the caller then cuts linear()'s result itself.
std::optional<std::vector<at::Tensor>> linear_apart(const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& bias, WeightLayout layout, int parts);

/// linear(), but in backward the gradients of weight and bias are computed when the engine reaches `place`, a number of
/// at::sequence_number (weight_gradients.h, form_late): after everything created since the number was taken. For
/// weights used as they are: ignores a ParameterSemantics of the weight; under a WeightGradients::Scope the scope
/// decides.
at::Tensor linear_late(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                       std::uint64_t place);

/// A product computed in parts.
struct ProductParts {
  std::int64_t parts = 2;  ///< number of parts, each with about the same number of entries of x's first dimension; >= 1
  /// Called after each part has been computed, in order, with y[begin : end]. It may change the part, also later, but
  /// must finish before y is read. On this thread, without gradients.
  std::function<void(const at::Tensor& part)> computed;
};

/// x W without a bias, x [..., in], computed in parts: work on one part can start while the next one is computed.
at::Tensor linear_in_parts(const at::Tensor& x, const at::Tensor& weight, WeightLayout layout,
                           const ProductParts& parts);

/// x + (delta + bias), the end of a residual branch: x, delta [..., C], bias [C] or undefined.
at::Tensor add_bias(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias);

}  // namespace tessera::nn
