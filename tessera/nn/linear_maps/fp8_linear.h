#pragma once
/// \file
/// The linear map whose operands are rounded to eight bits. nn/linear.h calls it inside an Fp8Scope.

#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/fp8.h>

namespace tessera::nn {

/// a b^T of a [m, k] and b [n, k]: fp32 [m, n]. By at::_scaled_mm where the device has a kernel for one scale each and
/// the sides are multiples of 16, else of widened operands (on a CPU always: what LibTorch has there widens, too).
at::Tensor fp8_product(const Fp8Tensor& a, const Fp8Tensor& b);
/// The same by at::_scaled_mm; of operands with one scale each.
at::Tensor scaled_product(const Fp8Tensor& a, const Fp8Tensor& b);

/// x W + b (linear.h) with three products of rounded operands: of x and W, of the output's gradient and W, of the
/// output's gradient and x. The bias and its gradient are not rounded. fp32 stays fp32 outside of the products; other
/// tensors give the type of autocast, or x's.
at::Tensor fp8_linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, WeightLayout layout,
                      const Fp8Scope& scope, const ProductParts* parts = nullptr);

}  // namespace tessera::nn
