#pragma once
/// \file
/// Four-bit and eight-bit storage of weights, in the formats of bitsandbytes. Four bits: blocks of 64 values, each with
/// its largest absolute value (absmax), in which every value is one of 16 numbers in [-1, 1]: NF4, the quantiles of a
/// normal distribution (Dettmers et al. 2023, "QLoRA", appendix E), or FP4, a sign, two bits of exponent and one
/// mantissa bit. Eight bits: a row of int8 with one absmax (Dettmers et al. 2022, "LLM.int8()"). The absmax values
/// themselves can be stored in one byte each, in the dynamic data type (Dettmers 2016; Dettmers et al. 2022).

#include <cstdint>

namespace tessera::kernels {

/// The 16 numbers represented by four-bit codes.
enum class FourBits : std::uint8_t { nf4, fp4 };

constexpr std::int64_t four_bit_block = 64;  ///< number of values that share an absmax
constexpr std::int64_t dynamic_block = 256;  ///< number of absmax values that share a second-level absmax
constexpr std::int64_t four_bit_count = 16;  ///< number of four-bit codes
constexpr std::int64_t dynamic_count = 256;  ///< number of codes of the dynamic data type

/// The numbers, by code. NF4's numbers ascend; FP4's first bit is the sign.
inline constexpr float nf4_numbers[four_bit_count] = {-1.0f,
                                                      -0.6961928009986877f,
                                                      -0.5250730514526367f,
                                                      -0.39491748809814453f,
                                                      -0.28444138169288635f,
                                                      -0.18477343022823334f,
                                                      -0.09105003625154495f,
                                                      0.0f,
                                                      0.07958029955625534f,
                                                      0.16093020141124725f,
                                                      0.24611230194568634f,
                                                      0.33791524171829224f,
                                                      0.44070982933044434f,
                                                      0.5626170039176941f,
                                                      0.7229568362236023f,
                                                      1.0f};
inline constexpr float fp4_numbers[four_bit_count] = {
    0.0f,  0.0625f / 12,  8.0f / 12,  12.0f / 12,  4.0f / 12,  6.0f / 12,  2.0f / 12,  3.0f / 12,
    -0.0f, -0.0625f / 12, -8.0f / 12, -12.0f / 12, -4.0f / 12, -6.0f / 12, -2.0f / 12, -3.0f / 12};

/// Quantizes x [n], which starts at a block boundary, into absmax [ceil(n / 64)] and codes [ceil(n / 2)], two per byte,
/// the first in the upper half. A value becomes the nearest number times absmax; halfway between two numbers, NF4 uses
/// the lower one and FP4 the one nearer to 0. A block of zeros is stored as zeros; a block with a NaN or an infinity
/// gets a non-finite absmax. The unused half of the last byte is the code of 0.
void quantize_four_bits(const float* x, std::int64_t n, FourBits type, std::uint8_t* codes, float* absmax);
/// The inverse: y[i] = number of code i * absmax[i / 64].
void dequantize_four_bits(const std::uint8_t* codes, const float* absmax, std::int64_t n, FourBits type, float* y);

/// Quantizes x [rows, columns] into absmax [rows] and codes [rows, columns]: x * 127 / absmax, to nearest, ties to
/// even. A row of zeros is stored as zeros; a row with a NaN or an infinity gets a non-finite absmax.
void quantize_int8_rows(const float* x, std::int64_t rows, std::int64_t columns, std::int8_t* codes, float* absmax);
/// The inverse: y = code * (absmax / 127).
void dequantize_int8_rows(const std::int8_t* codes, const float* absmax, std::int64_t rows, std::int64_t columns,
                          float* y);

/// The numbers of the dynamic data type, ascending, from -0.99296875 to 1: seven decades with 1, 2, 4, ... 64 numbers
/// of each sign, the means of neighbours that divide [0.1, 1] evenly (bitsandbytes' create_dynamic_map()). [256].
const float* dynamic_numbers();
/// Quantizes x [n] into codes [n] and absmax [ceil(n / 256)]: the numbers nearest to x / absmax; halfway between two,
/// the lower one.
void quantize_dynamic(const float* x, std::int64_t n, std::uint8_t* codes, float* absmax);
/// The inverse, for values first ... first + n - 1: y[i] = number of code first + i * its block's absmax + offset.
void dequantize_dynamic(const std::uint8_t* codes, const float* absmax, float offset, std::int64_t first,
                        std::int64_t n, float* y);

}  // namespace tessera::kernels
