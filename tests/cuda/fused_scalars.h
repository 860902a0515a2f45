#pragma once
/// \file
/// F32 and U32 of one lane, as in kernels/cpu/isa/simd_baseline.h, but with fma() rounded once, as on AVX2, AVX-512 and
/// a GPU, so that kernels/cpu/optimizer_loops.h compiled with them gives the same bits. Included inside a namespace.

struct F32 {
  static constexpr int width = 1;
  float v;
  static F32 of(float x) { return {x}; }
  static F32 load(const float* p, int = width) { return {*p}; }
  void store(float* p, int = width) const { *p = v; }
  static F32 from_bf16(const std::uint16_t* p) { return {std::bit_cast<float>(std::uint32_t{*p} << 16)}; }
  void to_bf16(std::uint16_t* p) const {
    const auto bits = std::bit_cast<std::uint32_t>(v);
    *p = static_cast<std::uint16_t>(std::isnan(v) ? 0x7fc0U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16);
  }
};
inline F32 operator+(F32 a, F32 b) { return {a.v + b.v}; }
inline F32 operator-(F32 a, F32 b) { return {a.v - b.v}; }
inline F32 operator*(F32 a, F32 b) { return {a.v * b.v}; }
inline F32 operator/(F32 a, F32 b) { return {a.v / b.v}; }
inline F32 fma(F32 a, F32 b, F32 c) { return {std::fma(a.v, b.v, c.v)}; }
inline F32 sqrt(F32 a) { return {std::sqrt(a.v)}; }
inline F32 sign(F32 a) { return {a.v > 0 ? 1.0F : a.v < 0 ? -1.0F : a.v}; }

struct U32 {
  std::uint32_t v;
  static U32 of(std::uint32_t x) { return {x}; }
  static U32 from(std::uint32_t first) { return {first}; }
  template <int Bits>
  U32 right() const {
    return {v >> Bits};
  }
};
inline U32 operator+(U32 a, U32 b) { return {a.v + b.v}; }
inline U32 operator*(U32 a, U32 b) { return {a.v * b.v}; }
inline U32 operator^(U32 a, U32 b) { return {a.v ^ b.v}; }
inline U32 operator&(U32 a, U32 b) { return {a.v & b.v}; }
inline U32 bits_of(F32 a) { return {std::bit_cast<std::uint32_t>(a.v)}; }
inline F32 of_bits(U32 a) { return {std::bit_cast<float>(a.v)}; }
inline F32 keep_nan(F32 a, F32 test) { return std::isnan(test.v) ? test : a; }
