#pragma once
/// \file
/// The linear map with operands rounded to eight bits. nn/linear.h calls it inside an Fp8Scope.

#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/fp8_product.h>

namespace tessera::nn {

/// x W + b (linear.h) with three products of rounded operands: x and W, the output's gradient and W, the output's
/// gradient and x. The bias and its gradient are not rounded, except for the bias of at::_scaled_mm (fp8_product.h).
/// fp32 stays fp32 outside of the products; other inputs give autocast's type, or x's.
at::Tensor fp8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                      const Fp8Scope& scope, const ProductParts* parts = nullptr);

}  // namespace tessera::nn
