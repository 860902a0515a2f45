#pragma once
/// \file
/// The vector type of the portable loops: one lane. Included by table_baseline_*.cpp only, inside an anonymous
/// namespace.

struct F32 {
  static constexpr int width = 1;
  float v;

  static F32 of(float x) { return {x}; }
  static F32 load(const float* p) { return {*p}; }
  static F32 load(const float* p, int n) { return {n > 0 ? *p : 0.0f}; }  ///< first n lanes, zeros after
  void store(float* p) const { *p = v; }
  static F32 from_bf16(const void* p) {
    std::uint16_t word;
    __builtin_memcpy(&word, p, sizeof word);
    return {__builtin_bit_cast(float, std::uint32_t{word} << 16)};
  }
  /// bf16: to nearest, ties to even; a NaN becomes 0x7fc0.
  void to_bf16(void* p) const {
    const auto bits = __builtin_bit_cast(std::uint32_t, v);
    const std::uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
    const auto word = static_cast<std::uint16_t>(v != v ? 0x7fc0u : rounded);
    __builtin_memcpy(p, &word, sizeof word);
  }
  static F32 from_fp16(const void* p);
  void to_fp16(void* p) const;
  void store(float* p, int n) const {
    if (n > 0) *p = v;
  }
};
inline F32 operator+(F32 a, F32 b) { return {a.v + b.v}; }
inline F32 operator-(F32 a, F32 b) { return {a.v - b.v}; }
inline F32 operator*(F32 a, F32 b) { return {a.v * b.v}; }
inline F32 operator/(F32 a, F32 b) { return {a.v / b.v}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {a.v * b.v + c.v}; }  ///< a * b + c
inline F32 sqrt(F32 a) { return {__builtin_sqrtf(a.v)}; }
inline F32 max(F32 a, F32 b) { return {a.v > b.v ? a.v : b.v}; }
inline F32 min(F32 a, F32 b) { return {a.v < b.v ? a.v : b.v}; }
inline F32 round(F32 a) { return {__builtin_rintf(a.v)}; }
/// 2^n for integral n in [-126, 127].
inline F32 pow2(F32 n) { return {__builtin_bit_cast(float, (static_cast<int>(n.v) + 127) << 23)}; }
/// Sets lanes >= n to `other`.
inline F32 keep(F32 a, int n, F32 other) { return n > 0 ? a : other; }
inline float sum(F32 a) { return a.v; }
inline float largest(F32 a) { return a.v; }

/// -1, 0 or 1; a NaN stays NaN.
inline F32 sign(F32 a) { return {a.v > 0 ? 1.0f : a.v < 0 ? -1.0f : a.v == 0 ? 0.0f : a.v}; }

/// A vector with as many unsigned integers as F32 has lanes.
struct U32 {
  std::uint32_t v;
  static U32 of(std::uint32_t x) { return {x}; }
  static U32 from(std::uint32_t first) { return {first}; }  ///< first, first + 1, ...
  template <int Bits>
  U32 right() const {
    return {v >> Bits};
  }
};
inline U32 operator+(U32 a, U32 b) { return {a.v + b.v}; }
inline U32 operator*(U32 a, U32 b) { return {a.v * b.v}; }
inline U32 operator^(U32 a, U32 b) { return {a.v ^ b.v}; }
inline U32 operator&(U32 a, U32 b) { return {a.v & b.v}; }
inline U32 bits_of(F32 a) { return {__builtin_bit_cast(std::uint32_t, a.v)}; }
inline F32 of_bits(U32 a) { return {__builtin_bit_cast(float, a.v)}; }
/// Returns `test` in lanes where it is a NaN, and `a` in the others.
inline F32 keep_nan(F32 a, F32 test) { return test.v != test.v ? test : a; }

/// A look-up table of 16 numbers for four-bit codes.
struct Numbers16 {
  const float* numbers;
  explicit Numbers16(const float* numbers) : numbers(numbers) {}
  /// y[i] = number of code i * scale for 16 codes, two per byte, the first in the upper half.
  void put(const std::uint8_t* codes, float scale, float* y) const {
    for (int i = 0; i < 8; ++i) {
      y[2 * i] = numbers[codes[i] >> 4] * scale;
      y[2 * i + 1] = numbers[codes[i] & 15] * scale;
    }
  }
};

/// Eight doubles (the product of two floats is exact in double).
struct F64x8 {
  double v[8];
  static F64x8 zero() { return {}; }
  static F64x8 of(double x) { return {{x, x, x, x, x, x, x, x}}; }
  static F64x8 load(const double* p) { return {{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}}; }
  static F64x8 of_floats(const float* p) { return {{p[0], p[1], p[2], p[3], p[4], p[5], p[6], p[7]}}; }
  bool any() const {  ///< not all zero
    bool found = false;
    for (int i = 0; i < 8; ++i) found |= v[i] != 0;
    return found;
  }
  /// Adds halves until one element is left.
  double sum() const { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
  void add_square(const float* p) {
    for (int i = 0; i < 8; ++i) v[i] += static_cast<double>(p[i]) * p[i];
  }
  void add_square(const float* p, int n) {
    for (int i = 0; i < 8 && i < n; ++i) v[i] += static_cast<double>(p[i]) * p[i];
  }
  void store(double* p) const {
    for (int i = 0; i < 8; ++i) p[i] = v[i];
  }
};
inline F64x8 operator+(const F64x8& a, const F64x8& b) {
  F64x8 out;
  for (int i = 0; i < 8; ++i) out.v[i] = a.v[i] + b.v[i];
  return out;
}
inline F64x8 operator-(const F64x8& a, const F64x8& b) {
  F64x8 out;
  for (int i = 0; i < 8; ++i) out.v[i] = a.v[i] - b.v[i];
  return out;
}
/// any() of either.
inline F64x8 operator|(const F64x8& a, const F64x8& b) {
  F64x8 out;
  for (int i = 0; i < 8; ++i) out.v[i] = a.v[i] != 0 ? a.v[i] : b.v[i];
  return out;
}

/// Converts like F16C: exactly; a NaN becomes quiet.
inline F32 F32::from_fp16(const void* p) {
  std::uint16_t half;
  __builtin_memcpy(&half, p, sizeof half);
  const std::uint32_t sign = (half & 0x8000u) << 16, exponent = half >> 10 & 31u, fraction = half & 0x3ffu;
  if (exponent == 0) {  // zero and subnormal: fraction x 2^-24
    const float magnitude = static_cast<float>(fraction) * 0x1p-24f;
    return {sign != 0 ? -magnitude : magnitude};
  }
  if (exponent == 31)
    return {__builtin_bit_cast(float, sign | 0x7f800000u | (fraction != 0 ? 0x400000u | fraction << 13 : 0))};
  return {__builtin_bit_cast(float, sign | (exponent + 112) << 23 | fraction << 13)};
}
/// Converts like F16C: to nearest, ties to even; a NaN keeps its upper bits.
inline void F32::to_fp16(void* p) const {
  const auto bits = __builtin_bit_cast(std::uint32_t, v);
  const std::uint32_t sign = bits >> 16 & 0x8000u, magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x47800000u) {  // >= 2^16, including infinity
    half = 0x7c00u;
  } else if (magnitude < 0x38800000u) {  // < 2^-14: adding 0.5 leaves multiples of 2^-24, rounded, in the low bits
    half = __builtin_bit_cast(std::uint32_t, __builtin_bit_cast(float, magnitude) + 0.5f) - 0x3f000000u;
  } else {
    half = (magnitude - 0x38000000u + 0xfffu + (magnitude >> 13 & 1u)) >> 13;  // may carry into infinity, as intended
  }
  const auto result = static_cast<std::uint16_t>(sign | half);
  __builtin_memcpy(p, &result, sizeof result);
}
