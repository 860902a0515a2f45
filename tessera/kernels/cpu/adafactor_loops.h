#pragma once
/// \file
/// adafactor.h over F32, except for the sums (square_loops.h). Included by loops.h inside the anonymous namespace of a
/// table.

void factored_direction_loop(const float* g, float gradient_scale, std::int64_t begin, std::int64_t n, const Factors& f,
                             float* u) {
  const F32 scale = F32::of(gradient_scale);
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t index = begin + i, r = index / f.columns, c = index % f.columns;
    const std::int64_t count = f.columns - c < n - i ? f.columns - c : n - i;
    const F32 row = F32::of(f.row[r]);
    const float* column = f.column + r / f.period * f.columns + c;
    for_vectors(count, [&](std::int64_t k, int lanes) __attribute__((always_inline)) {
      (row * F32::load(column + k, lanes) * (F32::load(g + i + k, lanes) * scale)).store(u + i + k, lanes);
    });
    i += count;
  }
}

void adafactor_moment_loop(const float* g, float gradient_scale, float* v, std::int64_t n, double rate,
                           double epsilon) {
  const F32 scale = F32::of(gradient_scale), of_new = rounded(rate), floor = rounded(epsilon);
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    const F32 gi = F32::load(g + i, lanes) * scale, vi = F32::load(v + i, lanes);
    fma(fma(gi, gi, floor) - vi, of_new, vi).store(v + i, lanes);
  });
}

void adafactor_direction_loop(const float* g, float gradient_scale, const float* v, std::int64_t n, float* u) {
  const F32 scale = F32::of(gradient_scale);
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    (F32::load(g + i, lanes) * scale / sqrt(F32::load(v + i, lanes))).store(u + i, lanes);
  });
}

void adafactor_apply_loop(float* p, const float* u, float* m, std::int64_t n, const AdafactorArgs& a) {
  const F32 rate = rounded(a.rate), keep_p = rounded(1 - a.decay), one_minus_beta1 = rounded(1 - a.beta1);
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    F32 ui = F32::load(u + i, lanes) * rate;
    if (m) {
      const F32 mi = F32::load(m + i, lanes);
      ui = fma(ui - mi, one_minus_beta1, mi);
      ui.store(m + i, lanes);
    }
    (F32::load(p + i, lanes) * keep_p - ui).store(p + i, lanes);
  });
}
