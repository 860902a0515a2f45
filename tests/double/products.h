#pragma once
/// \file
/// Matrix products on the double: what they cost, and leaving them out, for runs that only count.
///
/// Environment: DOUBLE_SKIP_PRODUCTS=1: a product gives zeros, and fused attention too. All shapes, bytes and launches
/// of a step stay what they are, at sizes that the CPU could not compute.

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace cuda_double {

bool products_are_skipped();

/// A product among the operators that the fallback runs, by its name without overload ("aten::addmm"), and where its
/// two matrices are among the arguments; -1: no product.
int first_matrix_of(const std::string& name);

/// Throws what CUDA says of arguments that at::_scaled_mm takes on a CPU only. `arguments`: self, mat2, scale_a,
/// scale_b, bias, scale_result, out_dtype, use_fast_accum, and perhaps out.
void check_scaled_product(c10::ArrayRef<c10::IValue> arguments);

/// mm, addmm and their like with out_dtype, which CUDA has: sums of products of halves in fp32. The operator's
/// arguments, already on the host: [self,] a, b, out_dtype [, beta, alpha] [, out]. Throws what CUDA says of other
/// types.
at::Tensor wide_product(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

/// 2 m n k, for each of a batch.
double product_flops(const at::Tensor& a, const at::Tensor& b);

/// Whether every row begins at a multiple of 16 bytes: else cuBLAS cannot load vectors and is several times slower.
bool is_aligned(const at::Tensor& matrix);

/// Zeros of the product's shape and type, which is `type` or a's. `groups`: of _grouped_mm, where one of two matrices
/// is a product for each.
at::Tensor zero_product(const at::Tensor& a, const at::Tensor& b, std::optional<std::int64_t> groups = {},
                        std::optional<at::ScalarType> type = {});

}  // namespace cuda_double
