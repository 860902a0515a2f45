#pragma once
/// \file
/// quantize.h. Included by loops.h inside the anonymous namespace of a table. Codes are looked up 16 at a time by
/// Numbers16 (simd_*.h); they are found by a plain loop over the bounds between adjacent numbers, which compilers
/// vectorize.

/// The upper bounds of NF4's codes 0 ... 14, halfway between adjacent numbers.
constexpr float nf4_bounds[] = {
    -0.8480964004993439f,  -0.6106329262256622f,   -0.4599952697753906f, -0.33967943489551544f, -0.23460740596055984f,
    -0.13791173323988914f, -0.045525018125772476f, 0.03979014977812767f, 0.1202552504837513f,   0.2035212516784668f,
    0.2920137718319893f,   0.3893125355243683f,    0.5016634166240692f,  0.6427869200706482f,   0.8614784181118011f};
/// The upper bounds of FP4's magnitudes in ascending order, and their codes.
constexpr float fp4_bounds[] = {0.00260417f, 0.0859375f, 0.20833333f, 0.29166667f, 0.4166667f, 0.583333f, 0.8333333f};
constexpr std::uint8_t fp4_codes[] = {0, 1, 6, 7, 4, 5, 2, 3};

/// The largest absolute value; NaN if there is a NaN.
inline float absmax_of(const float* x, std::int64_t n) {
  float most = 0;
  int odd = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    const float size = __builtin_fabsf(x[i]);
    most = size > most ? size : most;
    odd |= size != size;
  }
  return odd ? __builtin_nanf("") : most;
}

/// Codes of n <= 64 values, one per byte.
inline void nf4_codes_of(const float* x, float factor, std::int64_t n, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = x[i] * factor;
    int code = 0;
    for (const float bound : nf4_bounds) code += value > bound;
    codes[i] = static_cast<std::uint8_t>(code);
  }
}
inline void fp4_codes_of(const float* x, float factor, std::int64_t n, std::uint8_t* codes) {
  for (std::int64_t i = 0; i < n; ++i) {
    const float value = x[i] * factor, size = __builtin_fabsf(value);
    int rank = 0;
    for (const float bound : fp4_bounds) rank += size > bound;
    codes[i] = static_cast<std::uint8_t>(fp4_codes[rank] + (value < 0 ? 8 : 0));
  }
}

void quantize_four_bits_loop(const float* x, std::int64_t n, FourBits type, std::uint8_t* codes, float* absmax) {
  const bool nf4 = type == FourBits::nf4;
  for (std::int64_t begin = 0; begin < n; begin += four_bit_block) {
    const std::int64_t count = n - begin < four_bit_block ? n - begin : four_bit_block;
    const float most = absmax_of(x + begin, count);
    absmax[begin / four_bit_block] = most;
    alignas(64) std::uint8_t found[four_bit_block];
    __builtin_memset(found, nf4 ? 7 : 0, sizeof found);
    const float factor = 1 / most;
    if (most > 0 && factor <= __FLT_MAX__)  // below this, products with the values cannot be distinguished from 0
      nf4 ? nf4_codes_of(x + begin, factor, count, found) : fp4_codes_of(x + begin, factor, count, found);
    for (std::int64_t i = 0; i < count; i += 2)
      codes[(begin + i) / 2] = static_cast<std::uint8_t>(found[i] << 4 | found[i + 1]);
  }
}

void dequantize_four_bits_loop(const std::uint8_t* codes, const float* absmax, std::int64_t n, FourBits type,
                               float* y) {
  const float* const numbers = type == FourBits::nf4 ? nf4_numbers : fp4_numbers;
  const Numbers16 lookup(numbers);
  std::int64_t i = 0;
  for (; i + four_bit_block <= n; i += four_bit_block) {
    const float scale = absmax[i / four_bit_block];
    for (std::int64_t k = i; k < i + four_bit_block; k += 16) lookup.put(codes + k / 2, scale, y + k);
  }
  for (; i < n; ++i) {
    const int code = i % 2 == 0 ? codes[i / 2] >> 4 : codes[i / 2] & 15;
    y[i] = numbers[code] * absmax[i / four_bit_block];
  }
}

void quantize_int8_rows_loop(const float* x, std::int64_t rows, std::int64_t columns, std::int8_t* codes,
                             float* absmax) {
  for (std::int64_t r = 0; r < rows; ++r, x += columns, codes += columns) {
    const float most = absmax_of(x, columns), factor = most > 0 ? 127 / most : 0;
    absmax[r] = most;
    // The product may exceed 127 by a rounding or, for subnormal values, be infinite or NaN.
    for (std::int64_t c = 0; c < columns; ++c) {
      const float value = __builtin_rintf(x[c] * factor);
      codes[c] = static_cast<std::int8_t>(value > 127 ? 127 : value > -127 ? value : -127);
    }
  }
}

void dequantize_int8_rows_loop(const std::int8_t* codes, const float* absmax, std::int64_t rows, std::int64_t columns,
                               float* y) {
  for (std::int64_t r = 0; r < rows; ++r, codes += columns, y += columns) {
    const float scale = absmax[r] * (1.0f / 127);
    for (std::int64_t c = 0; c < columns; ++c) y[c] = static_cast<float>(codes[c]) * scale;
  }
}
