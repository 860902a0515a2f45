#pragma once
/// \file
/// Products of matrices in eight bits.

#include <tessera/nn/linear_maps/fp8.h>

namespace tessera::nn {

/// a b^T of a [m, k] and b [n, k]: fp32 [m, n]. By at::_scaled_mm if the device has a kernel for one scale each and n
/// and k are multiples of 16, else with widened operands (always on a CPU, where LibTorch's own kernel widens, too).
at::Tensor fp8_product(const Fp8Tensor& a, const Fp8Tensor& b);
/// The same by at::_scaled_mm, for operands with one scale each.
at::Tensor scaled_product(const Fp8Tensor& a, const Fp8Tensor& b);

/// a b^T + bias into `out` [m, n], contiguous, of fp32, bf16 or fp16. bias [n] or undefined; for a half-precision `out`
/// at::_scaled_mm rounds it to that type first, as products under autocast do. `fast`: sums may be less exact than fp32
/// (CUBLASLT_MATMUL_DESC_FAST_ACCUM).
void fp8_product_into(const at::Tensor& out, const Fp8Tensor& a, const Fp8Tensor& b, const at::Tensor& bias, bool fast);

}  // namespace tessera::nn
