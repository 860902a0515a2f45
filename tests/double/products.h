#pragma once
/// \file
/// Matrix products on the double: their cost, and how to skip them in runs that only count.
///
/// Environment: DOUBLE_SKIP_PRODUCTS=1: products and fused attention return zeros. All shapes, bytes and launches of a
/// step stay the same, at sizes that the CPU could not compute.

#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace cuda_double {

bool products_are_skipped();

/// For an operator that the fallback runs (name without overload, "aten::addmm"): the index of the first of its two
/// matrices among the arguments; -1: not a product.
int first_matrix_of(const std::string& name);

/// Throws CUDA's error for arguments that at::_scaled_mm accepts only on a CPU. `arguments`: self, mat2, scale_a,
/// scale_b, bias, scale_result, out_dtype, use_fast_accum, and optionally out.
void check_scaled_product(c10::ArrayRef<c10::IValue> arguments);

/// mm, addmm and similar operators with out_dtype, which only CUDA has: products of halves summed in fp32. `arguments`
/// are the operator's, already on the host: [self,] a, b, out_dtype [, beta, alpha] [, out]. Throws CUDA's error for
/// other types.
at::Tensor wide_product(const std::string& name, c10::ArrayRef<c10::IValue> arguments);

/// 2 m n k for each product of a batch.
double product_flops(const at::Tensor& a, const at::Tensor& b);

/// Whether every row begins at a multiple of 16 bytes: otherwise cuBLAS cannot load vectors and is several times
/// slower.
bool is_aligned(const at::Tensor& matrix);

/// Zeros of the product's shape, in `type` or else a's type. `groups`: for _grouped_mm, where each group of one of the
/// two matrices is a separate product.
at::Tensor zero_product(const at::Tensor& a, const at::Tensor& b, std::optional<std::int64_t> groups = {},
                        std::optional<at::ScalarType> type = {});

}  // namespace cuda_double
