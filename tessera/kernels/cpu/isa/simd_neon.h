#pragma once
/// \file
/// The vector type of the NEON loops: four lanes. Included by table_neon.cpp only, inside an anonymous namespace. max
/// and min are implemented as comparisons and selections, as on x86-64 (for a NaN and b, the result is b), because
/// NEON's own instructions keep the NaN.

struct F32 {
  static constexpr int width = 4;
  float32x4_t v;

  static uint32x4_t first(int n) {
    constexpr std::int32_t lanes[] = {0, 1, 2, 3};
    return vcltq_s32(vld1q_s32(lanes), vdupq_n_s32(n));
  }
  static F32 of(float x) { return {vdupq_n_f32(x)}; }
  static F32 load(const float* p) { return {vld1q_f32(p)}; }
  /// Loads the first n lanes; the rest are zeros. (If n is known to be `width`, this compiles to the plain load;
  /// likewise store.)
  static F32 load(const float* p, int n) {
    if (n >= width) return load(p);
    float lanes[width] = {};
    for (int i = 0; i < n; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  void store(float* p) const { vst1q_f32(p, v); }
  static uint16x4_t words(const void* p) {
    uint16x4_t out;
    __builtin_memcpy(&out, p, sizeof out);
    return out;
  }
  static F32 from_bf16(const void* p) { return {vreinterpretq_f32_u32(vshll_n_u16(words(p), 16))}; }
  /// bf16: to nearest, ties to even; a NaN becomes 0x7fc0. (BFCVT would keep some of its bits.)
  void to_bf16(void* p) const {
    const uint32x4_t bits = vreinterpretq_u32_f32(v), odd = vandq_u32(vshrq_n_u32(bits, 16), vdupq_n_u32(1));
    const uint16x4_t rounded = vshrn_n_u32(vaddq_u32(bits, vaddq_u32(odd, vdupq_n_u32(0x7fff))), 16);
    const uint16x4_t number = vmovn_u32(vceqq_f32(v, v)), out = vbsl_u16(number, rounded, vdup_n_u16(0x7fc0));
    __builtin_memcpy(p, &out, sizeof out);
  }
  static F32 from_fp16(const void* p) { return {vcvt_f32_f16(vreinterpret_f16_u16(words(p)))}; }
  void to_fp16(void* p) const {
    const float16x4_t out = vcvt_f16_f32(v);
    __builtin_memcpy(p, &out, sizeof out);
  }
  void store(float* p, int n) const {
    if (n >= width) return store(p);
    float lanes[width];
    store(lanes);
    for (int i = 0; i < n; ++i) p[i] = lanes[i];
  }
};
inline F32 operator+(F32 a, F32 b) { return {vaddq_f32(a.v, b.v)}; }
inline F32 operator-(F32 a, F32 b) { return {vsubq_f32(a.v, b.v)}; }
inline F32 operator*(F32 a, F32 b) { return {vmulq_f32(a.v, b.v)}; }
inline F32 operator/(F32 a, F32 b) { return {vdivq_f32(a.v, b.v)}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {vfmaq_f32(c.v, a.v, b.v)}; }  ///< a * b + c
inline F32 sqrt(F32 a) { return {vsqrtq_f32(a.v)}; }
inline F32 max(F32 a, F32 b) { return {vbslq_f32(vcgtq_f32(a.v, b.v), a.v, b.v)}; }
inline F32 min(F32 a, F32 b) { return {vbslq_f32(vcltq_f32(a.v, b.v), a.v, b.v)}; }
inline F32 round(F32 a) { return {vrndnq_f32(a.v)}; }
/// 2^n for integral n in [-126, 127].
inline F32 pow2(F32 n) {
  return {vreinterpretq_f32_s32(vshlq_n_s32(vaddq_s32(vcvtnq_s32_f32(n.v), vdupq_n_s32(127)), 23))};
}
/// Sets lanes >= n to `other`.
inline F32 keep(F32 a, int n, F32 other) { return n >= F32::width ? a : F32{vbslq_f32(F32::first(n), a.v, other.v)}; }
/// Combines halves until one element is left.
inline float sum(F32 a) {
  const float32x2_t x = vadd_f32(vget_low_f32(a.v), vget_high_f32(a.v));
  return vget_lane_f32(x, 0) + vget_lane_f32(x, 1);
}
inline float largest(F32 a) {
  const F32 x = max(a, F32{vextq_f32(a.v, a.v, 2)}), y = max(x, F32{vextq_f32(x.v, x.v, 1)});
  return vgetq_lane_f32(y.v, 0);
}

/// -1, 0 or 1; a NaN stays NaN.
inline F32 sign(F32 a) {
  const uint32x4_t bits = vreinterpretq_u32_f32(a.v), one = vreinterpretq_u32_f32(vdupq_n_f32(1));
  const uint32x4_t unit = vbicq_u32(vorrq_u32(vandq_u32(bits, vdupq_n_u32(0x80000000u)), one), vceqzq_f32(a.v));
  return {vbslq_f32(vceqq_f32(a.v, a.v), vreinterpretq_f32_u32(unit), a.v)};
}

/// A vector with as many unsigned integers as F32 has lanes.
struct U32 {
  uint32x4_t v;
  static U32 of(std::uint32_t x) { return {vdupq_n_u32(x)}; }
  /// first, first + 1, ...
  static U32 from(std::uint32_t first) {
    constexpr std::uint32_t lanes[] = {0, 1, 2, 3};
    return {vaddq_u32(vld1q_u32(lanes), vdupq_n_u32(first))};
  }
  template <int Bits>
  U32 right() const {
    return {vshrq_n_u32(v, Bits)};
  }
};
inline U32 operator+(U32 a, U32 b) { return {vaddq_u32(a.v, b.v)}; }
inline U32 operator*(U32 a, U32 b) { return {vmulq_u32(a.v, b.v)}; }
inline U32 operator^(U32 a, U32 b) { return {veorq_u32(a.v, b.v)}; }
inline U32 operator&(U32 a, U32 b) { return {vandq_u32(a.v, b.v)}; }
inline U32 bits_of(F32 a) { return {vreinterpretq_u32_f32(a.v)}; }
inline F32 of_bits(U32 a) { return {vreinterpretq_f32_u32(a.v)}; }
/// Returns `test` in lanes where it is a NaN, and `a` in the others.
inline F32 keep_nan(F32 a, F32 test) { return {vbslq_f32(vceqq_f32(test.v, test.v), a.v, test.v)}; }

/// A look-up table of 16 numbers for four-bit codes.
struct Numbers16 {
  const float* numbers;
  explicit Numbers16(const float* numbers) : numbers(numbers) {}
  /// y[i] = number of code i * scale for 16 codes, two per byte, the first in the upper half.
  void put(const std::uint8_t* codes, float scale, float* y) const {
    for (int i = 0; i < 8; i += 2) {
      const float32x4_t found = {numbers[codes[i] >> 4], numbers[codes[i] & 15], numbers[codes[i + 1] >> 4],
                                 numbers[codes[i + 1] & 15]};
      vst1q_f32(y + 2 * i, vmulq_n_f32(found, scale));
    }
  }
};

/// Eight doubles (the product of two floats is exact in double).
struct F64x8 {
  float64x2_t v[4];
  static F64x8 of(double x) {
    const float64x2_t pair = vdupq_n_f64(x);
    return {{pair, pair, pair, pair}};
  }
  static F64x8 zero() { return of(0); }
  static F64x8 load(const double* p) { return {{vld1q_f64(p), vld1q_f64(p + 2), vld1q_f64(p + 4), vld1q_f64(p + 6)}}; }
  static F64x8 of_floats(const float* p) {
    const float32x4_t low = vld1q_f32(p), high = vld1q_f32(p + 4);
    return {{vcvt_f64_f32(vget_low_f32(low)), vcvt_high_f64_f32(low), vcvt_f64_f32(vget_low_f32(high)),
             vcvt_high_f64_f32(high)}};
  }
  bool any() const {  ///< not all zero
    const uint64x2_t zeros =
        vandq_u64(vandq_u64(vceqzq_f64(v[0]), vceqzq_f64(v[1])), vandq_u64(vceqzq_f64(v[2]), vceqzq_f64(v[3])));
    return (vgetq_lane_u64(zeros, 0) & vgetq_lane_u64(zeros, 1)) == 0;
  }
  /// Adds halves until one element is left.
  double sum() const {
    const float64x2_t x = vaddq_f64(vaddq_f64(v[0], v[2]), vaddq_f64(v[1], v[3]));
    return vgetq_lane_f64(x, 0) + vgetq_lane_f64(x, 1);
  }
  void add_square(const float* p) {
    const F64x8 x = of_floats(p);
    for (int i = 0; i < 4; ++i) v[i] = vfmaq_f64(v[i], x.v[i], x.v[i]);
  }
  void add_square(const float* p, int n) {
    float lanes[8] = {};
    for (int i = 0; i < 8 && i < n; ++i) lanes[i] = p[i];
    add_square(lanes);
  }
  void store(double* p) const {
    for (int i = 0; i < 4; ++i) vst1q_f64(p + 2 * i, v[i]);
  }
};
inline F64x8 operator+(const F64x8& a, const F64x8& b) {
  return {{vaddq_f64(a.v[0], b.v[0]), vaddq_f64(a.v[1], b.v[1]), vaddq_f64(a.v[2], b.v[2]), vaddq_f64(a.v[3], b.v[3])}};
}
inline F64x8 operator-(const F64x8& a, const F64x8& b) {
  return {{vsubq_f64(a.v[0], b.v[0]), vsubq_f64(a.v[1], b.v[1]), vsubq_f64(a.v[2], b.v[2]), vsubq_f64(a.v[3], b.v[3])}};
}
/// Bitwise or: any() of either.
inline F64x8 operator|(const F64x8& a, const F64x8& b) {
  F64x8 out;
  for (int i = 0; i < 4; ++i)
    out.v[i] = vreinterpretq_f64_u64(vorrq_u64(vreinterpretq_u64_f64(a.v[i]), vreinterpretq_u64_f64(b.v[i])));
  return out;
}
