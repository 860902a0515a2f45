#pragma once
/// \file
/// The vector type of the AVX-512 loops: sixteen lanes. Included by table_avx512.cpp only, inside an anonymous
/// namespace. The maskz_ forms with a full mask are used where g++ 12 warns about uninitialised values in the plain
/// intrinsics (GCC bug 105593).

struct F32 {
  static constexpr int width = 16;
  __m512 v;

  static __mmask16 first(int n) { return n >= 16 ? 0xffff : n <= 0 ? 0 : static_cast<__mmask16>((1u << n) - 1); }
  static F32 of(float x) { return {_mm512_set1_ps(x)}; }
  static F32 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  /// Loads the first n lanes; the rest are zeros. (If n is known to be `width`, this compiles to the plain load;
  /// likewise store.)
  static F32 load(const float* p, int n) { return n >= width ? load(p) : F32{_mm512_maskz_loadu_ps(first(n), p)}; }
  void store(float* p) const { _mm512_storeu_ps(p, v); }
  static F32 from_bf16(const void* p) {
    const __m256i words = _mm256_loadu_si256(static_cast<const __m256i*>(p));
    return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(0xffff, _mm512_maskz_cvtepu16_epi32(0xffff, words), 16))};
  }
  /// bf16: to nearest, ties to even; a NaN becomes 0x7fc0.
  void to_bf16(void* p) const {
    const __m512i bits = _mm512_castps_si512(v), one = _mm512_set1_epi32(1);
    const __m512i odd = _mm512_and_si512(_mm512_maskz_srli_epi32(0xffff, bits, 16), one);
    const __m512i sum = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);
    const __m512i words =
        _mm512_mask_blend_epi32(nan, _mm512_maskz_srli_epi32(0xffff, sum, 16), _mm512_set1_epi32(0x7fc0));
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_maskz_cvtepi32_epi16(0xffff, words));
  }
  static F32 from_fp16(const void* p) {
    return {_mm512_maskz_cvtph_ps(0xffff, _mm256_loadu_si256(static_cast<const __m256i*>(p)))};
  }
  void to_fp16(void* p) const {
    _mm256_storeu_si256(static_cast<__m256i*>(p), _mm512_maskz_cvtps_ph(0xffff, v, _MM_FROUND_TO_NEAREST_INT));
  }
  void store(float* p, int n) const { n >= width ? store(p) : _mm512_mask_storeu_ps(p, first(n), v); }
};
inline F32 operator+(F32 a, F32 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline F32 operator-(F32 a, F32 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline F32 operator*(F32 a, F32 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline F32 operator/(F32 a, F32 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }  ///< a * b + c
inline F32 sqrt(F32 a) { return {_mm512_maskz_sqrt_ps(0xffff, a.v)}; }
inline F32 max(F32 a, F32 b) { return {_mm512_maskz_max_ps(0xffff, a.v, b.v)}; }
inline F32 min(F32 a, F32 b) { return {_mm512_maskz_min_ps(0xffff, a.v, b.v)}; }
inline F32 round(F32 a) {
  return {_mm512_maskz_roundscale_ps(0xffff, a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
/// 2^n for integral n in [-126, 127].
inline F32 pow2(F32 n) {
  return {_mm512_castsi512_ps(_mm512_maskz_slli_epi32(
      0xffff, _mm512_add_epi32(_mm512_maskz_cvtps_epi32(0xffff, n.v), _mm512_set1_epi32(127)), 23))};
}
/// Sets lanes >= n to `other`.
inline F32 keep(F32 a, int n, F32 other) {
  return n >= F32::width ? a : F32{_mm512_mask_blend_ps(F32::first(n), other.v, a.v)};
}
inline float sum(F32 a) {
  const __m256 half =
      _mm256_add_ps(_mm512_maskz_extractf32x8_ps(0xff, a.v, 0), _mm512_maskz_extractf32x8_ps(0xff, a.v, 1));
  __m128 x = _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_add_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_add_ss(x, _mm_movehdup_ps(x)));
}
inline float largest(F32 a) {
  const __m256 half =
      _mm256_max_ps(_mm512_maskz_extractf32x8_ps(0xff, a.v, 0), _mm512_maskz_extractf32x8_ps(0xff, a.v, 1));
  __m128 x = _mm_max_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
  x = _mm_max_ps(x, _mm_movehl_ps(x, x));
  return _mm_cvtss_f32(_mm_max_ss(x, _mm_movehdup_ps(x)));
}

/// -1, 0 or 1; a NaN stays NaN.
inline F32 sign(F32 a) {
  const __m512i bits = _mm512_castps_si512(a.v), one = _mm512_castps_si512(_mm512_set1_ps(1));
  const __mmask16 not_zero = _mm512_cmp_ps_mask(a.v, _mm512_setzero_ps(), _CMP_NEQ_UQ);
  const __m512i signs = _mm512_and_si512(bits, _mm512_set1_epi32(static_cast<int>(0x80000000u)));
  const F32 unit = {_mm512_castsi512_ps(_mm512_maskz_or_epi32(not_zero, signs, one))};
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q), unit.v, a.v)};
}

/// A vector with as many unsigned integers as F32 has lanes.
struct U32 {
  __m512i v;
  static U32 of(std::uint32_t x) { return {_mm512_set1_epi32(static_cast<int>(x))}; }
  /// first, first + 1, ...
  static U32 from(std::uint32_t first) {
    return {_mm512_add_epi32(_mm512_set1_epi32(static_cast<int>(first)),
                             _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15))};
  }
  template <int Bits>
  U32 right() const {
    return {_mm512_maskz_srli_epi32(0xffff, v, Bits)};
  }
};
inline U32 operator+(U32 a, U32 b) { return {_mm512_add_epi32(a.v, b.v)}; }
inline U32 operator*(U32 a, U32 b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
inline U32 operator^(U32 a, U32 b) { return {_mm512_xor_si512(a.v, b.v)}; }
inline U32 operator&(U32 a, U32 b) { return {_mm512_and_si512(a.v, b.v)}; }
inline U32 bits_of(F32 a) { return {_mm512_castps_si512(a.v)}; }
inline F32 of_bits(U32 a) { return {_mm512_castsi512_ps(a.v)}; }
/// Returns `test` in lanes where it is a NaN, and `a` in the others.
inline F32 keep_nan(F32 a, F32 test) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(test.v, test.v, _CMP_UNORD_Q), a.v, test.v)};
}

/// A look-up table of 16 numbers for four-bit codes.
struct Numbers16 {
  __m512 numbers;
  explicit Numbers16(const float* from) : numbers(_mm512_loadu_ps(from)) {}
  /// y[i] = number of code i * scale for 16 codes, two per byte, the first in the upper half.
  void put(const std::uint8_t* codes, float scale, float* y) const {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(codes)), four = _mm_set1_epi8(15);
    const __m128i each = _mm_unpacklo_epi8(_mm_and_si128(_mm_srli_epi16(bytes, 4), four), _mm_and_si128(bytes, four));
    const __m512 found = _mm512_maskz_permutexvar_ps(0xffff, _mm512_maskz_cvtepu8_epi32(0xffff, each), numbers);
    _mm512_storeu_ps(y, _mm512_mul_ps(found, _mm512_set1_ps(scale)));
  }
};

/// Eight doubles (the product of two floats is exact in double).
struct F64x8 {
  __m512d v;
  static F64x8 zero() { return {_mm512_setzero_pd()}; }
  static F64x8 of(double x) { return {_mm512_set1_pd(x)}; }
  static F64x8 load(const double* p) { return {_mm512_loadu_pd(p)}; }
  static F64x8 of_floats(const float* p) { return {_mm512_maskz_cvtps_pd(0xff, _mm256_loadu_ps(p))}; }
  bool any() const { return _mm512_cmp_pd_mask(v, _mm512_setzero_pd(), _CMP_NEQ_UQ) != 0; }  ///< not all zero
  /// Adds halves until one element is left.
  double sum() const {
    const __m256d a = _mm256_add_pd(_mm512_maskz_extractf64x4_pd(0xf, v, 0), _mm512_maskz_extractf64x4_pd(0xf, v, 1));
    const __m128d b = _mm_add_pd(_mm256_castpd256_pd128(a), _mm256_extractf128_pd(a, 1));
    return _mm_cvtsd_f64(_mm_add_sd(b, _mm_unpackhi_pd(b, b)));
  }
  void add(__m256 x) {
    const __m512d a = _mm512_maskz_cvtps_pd(0xff, x);
    v = _mm512_fmadd_pd(a, a, v);
  }
  void add_square(const float* p) { add(_mm256_loadu_ps(p)); }
  void add_square(const float* p, int n) {
    add(_mm256_maskz_loadu_ps(static_cast<__mmask8>(F32::first(n > 8 ? 8 : n)), p));
  }
  void store(double* p) const { _mm512_storeu_pd(p, v); }
};
inline F64x8 operator+(F64x8 a, F64x8 b) { return {_mm512_add_pd(a.v, b.v)}; }
inline F64x8 operator-(F64x8 a, F64x8 b) { return {_mm512_sub_pd(a.v, b.v)}; }
inline F64x8 operator|(F64x8 a, F64x8 b) { return {_mm512_or_pd(a.v, b.v)}; }  ///< bitwise or: any() of either

/// Stores bytes, bypassing the cache; `to` is aligned to Bytes, 32 or 64.
template <int Bytes>
inline void stream_store(void* to, const void* from) {
  if constexpr (Bytes == 64)
    _mm512_stream_si512(static_cast<__m512i*>(to), _mm512_loadu_si512(from));
  else
    _mm256_stream_si256(static_cast<__m256i*>(to), _mm256_loadu_si256(static_cast<const __m256i*>(from)));
}
inline void stream_fence() { _mm_sfence(); }
