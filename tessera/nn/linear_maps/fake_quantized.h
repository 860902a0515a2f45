#pragma once
/// \file
/// A linear map whose weight, input or both are rounded to a few bits, as they will be in the quantized model, while
/// training updates the full-precision weight.

#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/fake_quantize.h>

#include <optional>

namespace tessera::nn {

/// The rounded operands of a linear map; none by default.
struct QuantizedOperands {
  std::optional<FakeQuantization> weight;  ///< groups are counted in the layout [out, in], whatever the weight's layout
  std::optional<FakeQuantization> input;
  /// fp32 [2]: running maximum of (-minimum, maximum) over the inputs in training; undefined: nothing is recorded.
  at::Tensor noted = {};
};

/// x W + b (linear.h) of rounded operands. Gradients are those of the product with the rounded operands, passed on to x
/// and W unchanged. The rounded weight is not kept: backward rounds it again, so it uses as much memory as a plain
/// linear map. Needs a whole weight (no ParameterSemantics). `training`: inputs are recorded in `noted`.
at::Tensor fake_quantized_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                                 WeightLayout layout, const QuantizedOperands& operands, bool training = true);

}  // namespace tessera::nn
