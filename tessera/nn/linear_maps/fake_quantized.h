#pragma once
/// \file
/// The linear map whose weight, or input, or both are rounded to few bits as a quantized model will have them, while
/// training goes on with the full weight.

#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/fake_quantize.h>

#include <optional>

namespace tessera::nn {

/// What of a linear map is rounded; at first nothing.
struct QuantizedOperands {
  std::optional<FakeQuantization> weight;  ///< groups are counted in the layout [out, in], whatever the weight's is
  std::optional<FakeQuantization> input;
  /// fp32 [2]: inputs in training raise it to what is larger of it and their (-least, largest); undefined: they do not.
  at::Tensor noted = {};
};

/// x W + b (linear.h) of rounded operands. Gradients are those of the product with the rounded ones, passed on to x and
/// W unchanged. The rounded weight is not kept: backward rounds it again, so memory is a plain linear map's. Needs a
/// whole weight (no ParameterSemantics). `training`: inputs are noted.
at::Tensor fake_quantized_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 WeightLayout layout, const QuantizedOperands& operands, bool training = true);

}  // namespace tessera::nn
