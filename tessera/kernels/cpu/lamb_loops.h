#pragma once
/// \file
/// lamb.h over F32. Included by loops.h inside the anonymous namespace of a table.

/// Uses AdamW's vectors: step_size is without the learning rate, gradient_decay is the decay of the direction.
inline AdamwVectors lamb_vectors(AdamwArgs a) {
  a.learning_rate = 1;
  return adamw_vectors(a);
}

inline __attribute__((always_inline)) F32 lamb_direction(const AdamwVectors& c, F32 p, F32 m, F32 v) {
  return fma(p, c.gradient_decay, c.step_size * m / (sqrt(v) / c.sqrt_correction2 + c.epsilon));
}

void lamb_moments_loop(const float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& a,
                       double* p_squares, double* u_squares) {
  const AdamwVectors c = lamb_vectors(a);
  for (std::int64_t i = 0; i < n; i += square_block) {
    const int count = static_cast<int>(n - i < square_block ? n - i : square_block);
    float u[square_block];
    for_vectors(count, [&](std::int64_t k, int lanes) __attribute__((always_inline)) {
      const F32 gi = F32::load(g + i + k, lanes) * c.gradient_scale;
      F32 mi = F32::load(m + i + k, lanes), vi = F32::load(v + i + k, lanes);
      mi = fma(gi - mi, c.one_minus_beta1, mi);
      vi = fma(gi * c.one_minus_beta2, gi, vi * c.beta2);
      mi.store(m + i + k, lanes);
      vi.store(v + i + k, lanes);
      lamb_direction(c, F32::load(p + i + k, lanes), mi, vi).store(u + k, lanes);
    });
    *p_squares++ = sum_of_block(p + i, count);
    *u_squares++ = sum_of_block(u, count);
  }
}

void lamb_apply_loop(float* p, const float* m, const float* v, std::int64_t n, const AdamwArgs& a, double trust_ratio) {
  const AdamwVectors c = lamb_vectors(a);
  const F32 rate = rounded(a.learning_rate * trust_ratio);
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    const F32 pi = F32::load(p + i, lanes);
    const F32 u = lamb_direction(c, pi, F32::load(m + i, lanes), F32::load(v + i, lanes));
    (pi - rate * u).store(p + i, lanes);
  });
}
