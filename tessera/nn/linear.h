#pragma once
/// \file
/// The linear map, with weights stored either way.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::nn {

/// How a weight is stored: torch.nn.Linear has [out, in], GPT-2's Conv1D [in, out].
enum class WeightLayout { in_out, out_in };

/// x W + b: x [..., in], bias [out] or undefined. Returns [..., out]. The gradient of the weight has the weight's
/// layout. Leave the bias out where the next operation adds it in its own pass (bias_gelu, add_layer_norm, add_bias).
/// Under autocast to bf16 the products run in bf16 with fp32 accumulation and the result is bf16; gradients of an fp32
/// weight are fp32, on a CUDA device too: there the product's own sums, rounded to nothing else.
at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                  WeightLayout layout = WeightLayout::in_out);

/// The same in `parts` (at most three) pieces of its columns, [..., out / parts] each, which share memory: queries,
/// keys and values of one matrix. Their gradients become that of the whole in one pass, which forms the bias's too.
/// Nothing where no kernel of a device serves that: the caller cuts linear()'s result itself.
std::optional<std::vector<at::Tensor>> linear_apart(const at::Tensor& x, const at::Tensor& weight,
                                                    const at::Tensor& bias, WeightLayout layout, int parts);

/// linear(), and in backward the gradients of weight and bias are formed when the engine comes to `place`, a number of
/// at::sequence_number (weight_gradients.h, form_late): after whatever was made since the number was taken. For what is
/// used as it is: a ParameterSemantics of the weight is not asked, and under a WeightGradients::Scope that decides.
at::Tensor linear_late(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                       std::uint64_t place);

/// A product that is formed in parts.
struct ProductParts {
  std::int64_t parts = 2;  ///< how many, each with about as many entries of x's first dimension; >= 1
  /// Called after each part has been computed, in their order, with y[begin : end]. It may change it, also later, as
  /// long as it is done before anybody reads y. On this thread, without gradients.
  std::function<void(const at::Tensor& part)> computed;
};

/// x W without a bias, x [..., in], formed in parts: what one part is needed for can begin while the next one is
/// computed.
at::Tensor linear_in_parts(const at::Tensor& x, const at::Tensor& weight, WeightLayout layout,
                           const ProductParts& parts);

/// x + (delta + bias), the end of a residual branch: x, delta [..., C], bias [C] or undefined.
at::Tensor add_bias(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias);

}  // namespace tessera::nn
