#pragma once
/// \file
/// Matrices rounded to eight bits with one scale each, and transposed in the same pass: largest_value(), to_fp8() and
/// transposed() of nn/linear_maps/fp8.h on a device (Micikevicius et al. 2022, "FP8 Formats for Deep Learning"). The
/// scale is computed on the device, so the host does not wait.
///
/// Functions return before the work is done, on `stream` (a cudaStream_t), and throw std::runtime_error with CUDA's
/// message when a launch fails. Results depend only on the arguments, because the order does not matter for maxima.
/// Four elements are read and written at a time if sizes and pointers allow it.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

enum class Fp8 : std::uint8_t { e4m3, e5m2 };
/// The type's largest number.
constexpr float fp8_most(Fp8 type) { return type == Fp8::e4m3 ? 448 : 57344; }

/// Number of values that fp8_largest() writes for n elements: at least one.
constexpr std::int64_t fp8_parts(std::int64_t n) {
  constexpr std::int64_t each = 256 * 16, most = 132 * 4;  // number of blocks that fill an H100/H200
  const std::int64_t parts = (n + each - 1) / each;
  return parts < 1 ? 1 : parts > most ? most : parts;
}

/// The largest absolute values of fp8_parts(n) parts of x [n]; NaN if a part contains one. If `chosen` is not null and
/// is > 0, they are not needed, and nothing is read or written.
void fp8_largest(ConstReals x, const float* chosen, float* parts, std::int64_t n, void* stream);

/// x [rows, columns] times a factor, `most` / the largest value, rounded to the type, ties to even; results beyond the
/// type's largest number saturate. The factor is 1 if the largest value is 0 or NaN, or if the quotient is not finite.
/// NaN becomes 0x7f.
struct Fp8Cast {
  ConstReals x = {};
  Fp8 type = Fp8::e4m3;
  float most = 448;                ///< fp8_most(), reduced by the margin, if any
  const float* chosen = nullptr;   ///< the largest value to use, if > 0; may be null
  const float* parts = nullptr;    ///< the values of fp8_largest(), whose maximum is used otherwise
  std::uint8_t* values = nullptr;  ///< [rows, columns]; null: not requested
  std::uint8_t* turned = nullptr;  ///< [columns, rows], the transpose; null: not requested
  float* scale = nullptr;          ///< one number, 1 / factor
  float* noted = nullptr;          ///< one number >= 0: raised to x's largest value if that is larger; may be null
};
/// columns < 2^31.
void fp8_cast(const Fp8Cast& a, std::int64_t rows, std::int64_t columns, void* stream);

}  // namespace tessera::kernels::cuda
