#pragma once
/// \file
/// Optimizer averages in eight bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"; the data
/// types of bitsandbytes): blocks of 64 elements, each with one scale, in which every element is one of 256 numbers.
///
/// The scale is the block's value of largest magnitude, with its sign, so that this value is stored exactly, as 1 times
/// the scale. (bitsandbytes divides by the absolute value, and its numbers end at -0.993: a negative value of largest
/// magnitude loses 0.7 % there.) Encoding decoded values therefore gives the same bits again, so they can be saved as
/// float32. Blocks have 64 elements instead of bitsandbytes' 256, because parameters are divided over ranks at
/// multiples of 64, so that codes and scales do not depend on the cuts. A block takes 68 bytes instead of 64.

#include <tessera/kernels/cpu/adamw.h>
#include <tessera/kernels/cpu/lion.h>

#include <cstdint>

namespace tessera::kernels {

constexpr std::int64_t eight_bit_block = 64;   ///< number of elements that share a scale
constexpr std::int64_t eight_bit_count = 256;  ///< codes

/// The two forms of the dynamic data type.
enum class EightBitMap : std::uint8_t {
  with_sign,    ///< -0.993 ... 1: in seven decades 1, 2, 4, ... 64 numbers of each sign
  without_sign  ///< 0 ... 1: in seven decades 2, 4, 8, ... 128 numbers
};

/// The numbers, by code, ascending: the midpoints of equal parts of each decade [10^(d-7), 10^(d-6)], 0 and 1
/// (bitsandbytes' create_dynamic_map()). [256].
const float* eight_bit_numbers(EightBitMap map);

/// n numbers in encoded form.
struct EightBits {
  std::uint8_t* codes;  ///< [n]
  float* scales;        ///< [ceil(n / 64)]
};

/// Encodes x [n], which starts at a block boundary: the numbers nearest to x / scale. A value halfway between two
/// numbers, within rounding, may become either. A block with all values below 2^-100 is stored as zeros; a block with a
/// NaN or an infinity becomes NaN.
void encode_eight_bits(const float* x, std::int64_t n, EightBitMap map, EightBits to);
/// The inverse: y[i] = number of code i times its block's scale.
void decode_eight_bits(EightBits from, std::int64_t n, EightBitMap map, float* y);

/// adamw() with averages in eight bits, m with_sign, v without_sign: decoded, updated and encoded in one pass. p is
/// updated with the averages before they are rounded.
void adamw_eight_bits(float* p, const float* g, EightBits m, EightBits v, std::int64_t n, const AdamwArgs& args);
/// lion() with its average in eight bits, with_sign.
void lion_eight_bits(float* p, const float* g, EightBits m, std::int64_t n, const LionArgs& args);

}  // namespace tessera::kernels
