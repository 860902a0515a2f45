#pragma once
/// \file
/// The vector type of the portable loops: one lane. Included by table_baseline.cpp only, inside an anonymous namespace.

struct F32 {
  static constexpr int width = 1;
  float v;

  static F32 of(float x) { return {x}; }
  static F32 load(const float* p) { return {*p}; }
  static F32 load(const float* p, int n) { return {n > 0 ? *p : 0.0f}; }  ///< first n lanes, zeros after
  void store(float* p) const { *p = v; }
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
/// Lanes >= n become `other`.
inline F32 keep(F32 a, int n, F32 other) { return n > 0 ? a : other; }
inline float sum(F32 a) { return a.v; }
inline float largest(F32 a) { return a.v; }

/// Eight doubles that accumulate squares of floats.
struct F64x8 {
  double v[8];
  static F64x8 zero() { return {}; }
  void add_square(const float* p) {
    for (int i = 0; i < 8; ++i) v[i] += static_cast<double>(p[i]) * p[i];
  }
  void add_square(const float* p, int n) {
    for (int i = 0; i < 8 && i < n; ++i) v[i] += static_cast<double>(p[i]) * p[i];
  }
  void get(double* out) const {
    for (int i = 0; i < 8; ++i) out[i] = v[i];
  }
};
