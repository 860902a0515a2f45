#pragma once
/// \file
/// The dtypes and reductions of wire/, and how values are combined and scaled. The enumerators' values are those of
/// c/tessera_c.h.

#include <tessera/kernels/cpu/reduce.h>

#include <cstddef>
#include <cstdint>

namespace tessera::wire {

enum class Dtype : std::int32_t {
  uint8,
  int8,
  int16,
  int32,
  int64,
  float16,
  bfloat16,
  float32,
  float64,
  boolean,
  complex64,
  complex128
};
constexpr int dtype_count = 12;
/// Size of an element in bytes.
std::size_t width_of(Dtype dtype);
const char* name_of(Dtype dtype);
/// True for floating-point and complex types, which can be scaled and averaged.
bool is_inexact(Dtype dtype);

enum class Reduction : std::int32_t { sum, product, min, max, average, band, bor, bxor };
constexpr int reduction_count = 8;
const char* name_of(Reduction reduction);

/// How arrays are combined: by kernels::reduce, or by a loop in arithmetic.cpp if `reduce` does not support the
/// operation. The bytes are treated as elements of type `number`: a complex sum is a sum of twice as many real numbers.
struct Arithmetic {
  using Loop = void (*)(const void* const* inputs, int input_count, void* const* outputs, int output_count,
                        std::size_t bytes);
  kernels::Number number = kernels::Number::uint8;
  kernels::Fold fold = kernels::Fold::sum;
  Loop loop = nullptr;
};
/// Throws Failure (invalid) naming both if the dtype does not support the reduction.
Arithmetic arithmetic_of(Dtype dtype, Reduction reduction);
/// output = left fold of the inputs; `bytes`: size of each array. output may be one of the inputs.
void combine(const Arithmetic& how, const void* const* inputs, int input_count, void* output, std::size_t bytes);

/// data[i] *= factor, rounded once. `dtype` must be inexact.
void scale(Dtype dtype, void* data, std::int64_t count, double factor);

}  // namespace tessera::wire
