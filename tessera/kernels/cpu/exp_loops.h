#pragma once
/// \file
/// exp of a vector. Included by loops.h inside the anonymous namespace of a table.

/// e^x for x in [-87, 88], clamped outside; relative error below 2e-7 (Cephes expf: x = n ln 2 + r, degree-5 polynomial
/// in r).
inline __attribute__((always_inline)) F32 exp(F32 x) {
  x = min(max(x, F32::of(-87.0f)), F32::of(88.0f));
  const F32 n = round(x * F32::of(1.44269504088896341f));
  F32 r = fma(n, F32::of(-0.693359375f), x);
  r = fma(n, F32::of(2.12194440e-4f), r);
  F32 p = F32::of(1.9875691500e-4f);
  p = fma(p, r, F32::of(1.3981999507e-3f));
  p = fma(p, r, F32::of(8.3334519073e-3f));
  p = fma(p, r, F32::of(4.1665795894e-2f));
  p = fma(p, r, F32::of(1.6666665459e-1f));
  p = fma(p, r, F32::of(5.0000001201e-1f));
  p = fma(p, r * r, r + F32::of(1.0f));
  return p * pow2(n);
}
