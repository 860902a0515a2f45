#pragma once
/// \file
/// The vector type of the AVX2 loops: eight lanes. Included by table_avx2.cpp only, inside an anonymous namespace.

struct F32 {
  static constexpr int width = 8;
  __m256 v;

  static __m256i first(int n) {
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  }
  static F32 of(float x) { return {_mm256_set1_ps(x)}; }
  static F32 load(const float* p) { return {_mm256_loadu_ps(p)}; }
  /// Loads the first n lanes; the rest are zeros. (If n is known to be `width`, this compiles to the plain load;
  /// likewise store.)
  static F32 load(const float* p, int n) { return n >= width ? load(p) : F32{_mm256_maskload_ps(p, first(n))}; }
  void store(float* p) const { _mm256_storeu_ps(p, v); }
  static F32 from_bf16(const void* p) {
    const __m128i words = _mm_loadu_si128(static_cast<const __m128i*>(p));
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(words), 16))};
  }
  /// bf16: to nearest, ties to even; a NaN becomes 0x7fc0.
  void to_bf16(void* p) const {
    const __m256i bits = _mm256_castps_si256(v), one = _mm256_set1_epi32(1);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), one);
    const __m256i sum = _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(_mm256_srli_epi32(sum, 16), _mm256_set1_epi32(0x7fc0), nan);
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(words, words), 0x08);
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_castsi256_si128(packed));
  }
  static F32 from_fp16(const void* p) { return {_mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(p)))}; }
  void to_fp16(void* p) const {
    _mm_storeu_si128(static_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  void store(float* p, int n) const { n >= width ? store(p) : _mm256_maskstore_ps(p, first(n), v); }
};
inline F32 operator+(F32 a, F32 b) { return {_mm256_add_ps(a.v, b.v)}; }
inline F32 operator-(F32 a, F32 b) { return {_mm256_sub_ps(a.v, b.v)}; }
inline F32 operator*(F32 a, F32 b) { return {_mm256_mul_ps(a.v, b.v)}; }
inline F32 operator/(F32 a, F32 b) { return {_mm256_div_ps(a.v, b.v)}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }  ///< a * b + c
inline F32 sqrt(F32 a) { return {_mm256_sqrt_ps(a.v)}; }
inline F32 max(F32 a, F32 b) { return {_mm256_max_ps(a.v, b.v)}; }
inline F32 min(F32 a, F32 b) { return {_mm256_min_ps(a.v, b.v)}; }
inline F32 round(F32 a) { return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)}; }
/// 2^n for integral n in [-126, 127].
inline F32 pow2(F32 n) {
  return {
      _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127)), 23))};
}
/// Sets lanes >= n to `other`.
inline F32 keep(F32 a, int n, F32 other) {
  return n >= F32::width ? a : F32{_mm256_blendv_ps(other.v, a.v, _mm256_castsi256_ps(F32::first(n)))};
}
inline float sum(F32 a) {
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float largest(F32 a) {
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

/// -1, 0 or 1; a NaN stays NaN.
inline F32 sign(F32 a) {
  const __m256 zero = _mm256_setzero_ps();
  const __m256 signs = _mm256_and_ps(a.v, _mm256_set1_ps(-0.0f));
  const __m256 unit = _mm256_and_ps(_mm256_cmp_ps(a.v, zero, _CMP_NEQ_UQ), _mm256_or_ps(signs, _mm256_set1_ps(1)));
  return {_mm256_blendv_ps(unit, a.v, _mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q))};
}

/// A vector with as many unsigned integers as F32 has lanes.
struct U32 {
  __m256i v;
  static U32 of(std::uint32_t x) { return {_mm256_set1_epi32(static_cast<int>(x))}; }
  /// first, first + 1, ...
  static U32 from(std::uint32_t first) {
    return {_mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(first)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7))};
  }
  template <int Bits>
  U32 right() const {
    return {_mm256_srli_epi32(v, Bits)};
  }
};
inline U32 operator+(U32 a, U32 b) { return {_mm256_add_epi32(a.v, b.v)}; }
inline U32 operator*(U32 a, U32 b) { return {_mm256_mullo_epi32(a.v, b.v)}; }
inline U32 operator^(U32 a, U32 b) { return {_mm256_xor_si256(a.v, b.v)}; }
inline U32 operator&(U32 a, U32 b) { return {_mm256_and_si256(a.v, b.v)}; }
inline U32 bits_of(F32 a) { return {_mm256_castps_si256(a.v)}; }
inline F32 of_bits(U32 a) { return {_mm256_castsi256_ps(a.v)}; }
/// Returns `test` in lanes where it is a NaN, and `a` in the others.
inline F32 keep_nan(F32 a, F32 test) {
  return {_mm256_blendv_ps(a.v, test.v, _mm256_cmp_ps(test.v, test.v, _CMP_UNORD_Q))};
}

/// A look-up table of 16 numbers for four-bit codes.
struct Numbers16 {
  __m256 low, high;
  explicit Numbers16(const float* numbers) : low(_mm256_loadu_ps(numbers)), high(_mm256_loadu_ps(numbers + 8)) {}
  /// y[i] = number of code i * scale for 16 codes, two per byte, the first in the upper half.
  void put(const std::uint8_t* codes, float scale, float* y) const {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)), four = _mm_set1_epi8(15);
    const __m128i each = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), four), _mm_and_si128(bytes, four));
    const __m256 factor = _mm256_set1_ps(scale);
    _mm256_storeu_ps(y, _mm256_mul_ps(found(_mm256_cvtepu8_epi32(each)), factor));
    _mm256_storeu_ps(y + 8, _mm256_mul_ps(found(_mm256_cvtepu8_epi32(_mm_srli_si128(each, 8))), factor));
  }
  __m256 found(__m256i code) const {  // the fourth bit, shifted into the sign bit, selects the half
    return _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, code), _mm256_permutevar8x32_ps(high, code),
                            _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
  }
};

/// Eight doubles (the product of two floats is exact in double).
struct F64x8 {
  __m256d low, high;
  static F64x8 zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
  static F64x8 of(double x) { return {_mm256_set1_pd(x), _mm256_set1_pd(x)}; }
  static F64x8 load(const double* p) { return {_mm256_loadu_pd(p), _mm256_loadu_pd(p + 4)}; }
  static F64x8 of_floats(const float* p) {
    return {_mm256_cvtps_pd(_mm_loadu_ps(p)), _mm256_cvtps_pd(_mm_loadu_ps(p + 4))};
  }
  bool any() const {  ///< not all zero
    const __m256d zero = _mm256_setzero_pd();
    return _mm256_movemask_pd(
               _mm256_or_pd(_mm256_cmp_pd(low, zero, _CMP_NEQ_UQ), _mm256_cmp_pd(high, zero, _CMP_NEQ_UQ))) != 0;
  }
  /// Adds halves until one element is left.
  double sum() const {
    const __m256d a = _mm256_add_pd(low, high);
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
  }
  void add(__m256 x) {
    const __m256d a = _mm256_cvtps_pd(_mm256_castps256_ps128(x)), b = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    low = _mm256_fmadd_pd(a, a, low);
    high = _mm256_fmadd_pd(b, b, high);
  }
  void add_square(const float* p) { add(_mm256_loadu_ps(p)); }
  void add_square(const float* p, int n) { add(_mm256_maskload_ps(p, F32::first(n))); }
  void store(double* p) const { _mm256_storeu_pd(p, low), _mm256_storeu_pd(p + 4, high); }
};
inline F64x8 operator+(F64x8 a, F64x8 b) { return {_mm256_add_pd(a.low, b.low), _mm256_add_pd(a.high, b.high)}; }
inline F64x8 operator-(F64x8 a, F64x8 b) { return {_mm256_sub_pd(a.low, b.low), _mm256_sub_pd(a.high, b.high)}; }
inline F64x8 operator|(F64x8 a, F64x8 b) {  ///< bitwise or: any() of either
  return {_mm256_or_pd(a.low, b.low), _mm256_or_pd(a.high, b.high)};
}

/// Stores bytes, bypassing the cache; `to` is aligned to Bytes, a multiple of 32.
template <int Bytes>
inline void stream_store(void* to, const void* from) {
  for (int i = 0; i < Bytes / 32; ++i)
    _mm256_stream_si256(static_cast<__m256i*>(to) + i, _mm256_loadu_si256(static_cast<const __m256i*>(from) + i));
}
inline void stream_fence() { _mm_sfence(); }
