#pragma once
/// \file
/// Matrix products for the fused operations of nn/.

#include <ATen/core/Tensor.h>

namespace tessera::nn {

/// out = a b, or out += a b. fp32 matrices on the CPU; a and b may be transposed views (they are not copied); out is
/// contiguous.
///
/// LibTorch multiplies fp32 with MKL, which runs its AVX2 kernels on CPUs not made by Intel. oneDNN, which is also in
/// LibTorch, uses AVX-512 on them: on a Zen 4 core 102-112 against 84-101 GFLOP/s at the shapes of GPT-2
/// (bench/gemm_bench.cpp). So this uses oneDNN if the CPU has AVX-512 and is not Intel's, else MKL.
void multiply(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate = false);

/// Whether this CPU has instructions for matrix products in `half` (bf16 or fp16).
bool has_instructions(at::ScalarType half);

/// The same for a and b in bf16 or fp16 and out in fp32: products accumulate in fp32 and are rounded to that type once.
/// On CPUs without instructions for it, both operands are widened for multiply().
void multiply_half(const at::Tensor& out, const at::Tensor& a, const at::Tensor& b, bool accumulate = false);

/// Whether multiply() uses oneDNN on this machine.
bool multiplies_with_onednn();

}  // namespace tessera::nn
