#pragma once
/// \file
/// The linear map whose operands are rounded to eight bits. nn/linear.h calls it inside an Fp8Scope.

#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/fp8_product.h>

namespace tessera::nn {

/// x W + b (linear.h) with three products of rounded operands: of x and W, of the output's gradient and W, of the
/// output's gradient and x. The bias and its gradient are not rounded, but for the bias of at::_scaled_mm
/// (fp8_product.h). fp32 stays fp32 outside of the products; other tensors give the type of autocast, or x's.
at::Tensor fp8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                      const Fp8Scope& scope, const ProductParts* parts = nullptr);

}  // namespace tessera::nn
