#pragma once
/// \file
/// AdamW, SGD and the sum of squares over F32 (adamw.h, sgd.h, sum_of_squares.h). Included by table_*.cpp inside an
/// anonymous namespace, once per instruction set. Full vectors and the masked tail run the same function: no element is
/// rounded otherwise.

struct AdamwVectors {
  F32 decay, one_minus_beta1, beta2, one_minus_beta2, step_size, sqrt_correction2, epsilon, gradient_scale;
};

inline __attribute__((always_inline)) void adamw_vector(const AdamwVectors& c, F32& p, F32 g, F32& m, F32& v) {
  g = g * c.gradient_scale;
  m = fma(g - m, c.one_minus_beta1, m);
  v = fma(g * c.one_minus_beta2, g, v * c.beta2);
  const F32 denominator = sqrt(v) / c.sqrt_correction2 + c.epsilon;
  p = p * c.decay - c.step_size * m / denominator;
}

void adamw_loop(float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& a) {
  // Scalars are formed in double, as Python forms them, and rounded once.
  const double correction1 = 1 - __builtin_pow(a.beta1, static_cast<double>(a.step));
  const double correction2 = 1 - __builtin_pow(a.beta2, static_cast<double>(a.step));
  const auto of = [](double x) { return F32::of(static_cast<float>(x)); };
  const AdamwVectors c{of(1 - a.learning_rate * a.weight_decay),
                       of(1 - a.beta1),
                       of(a.beta2),
                       of(1 - a.beta2),
                       of(a.learning_rate / correction1),
                       of(__builtin_sqrt(correction2)),
                       of(a.epsilon),
                       of(a.gradient_scale)};
  std::int64_t i = 0;
  for (; i + F32::width <= n; i += F32::width) {
    F32 pi = F32::load(p + i), mi = F32::load(m + i), vi = F32::load(v + i);
    adamw_vector(c, pi, F32::load(g + i), mi, vi);
    pi.store(p + i), mi.store(m + i), vi.store(v + i);
  }
  if (const int rest = static_cast<int>(n - i); rest > 0) {
    F32 pi = F32::load(p + i, rest), mi = F32::load(m + i, rest), vi = F32::load(v + i, rest);
    adamw_vector(c, pi, F32::load(g + i, rest), mi, vi);
    pi.store(p + i, rest), mi.store(m + i, rest), vi.store(v + i, rest);
  }
}

struct SgdVectors {
  F32 learning_rate, momentum, weight_decay, gradient_scale;
};

/// Momentum: 0 none, 1 plain, 2 Nesterov.
template <int Momentum>
inline __attribute__((always_inline)) void sgd_vector(const SgdVectors& c, F32& p, F32 g, F32& b) {
  g = fma(p, c.weight_decay, g * c.gradient_scale);
  if constexpr (Momentum > 0) {
    b = fma(b, c.momentum, g);
    g = Momentum == 2 ? fma(b, c.momentum, g) : b;
  }
  p = p - c.learning_rate * g;
}

template <int Momentum>
void sgd_range(const SgdVectors& c, float* p, const float* g, float* b, std::int64_t n) {
  std::int64_t i = 0;
  F32 bi = F32::of(0);
  for (; i + F32::width <= n; i += F32::width) {
    F32 pi = F32::load(p + i);
    if constexpr (Momentum > 0) bi = F32::load(b + i);
    sgd_vector<Momentum>(c, pi, F32::load(g + i), bi);
    pi.store(p + i);
    if constexpr (Momentum > 0) bi.store(b + i);
  }
  if (const int rest = static_cast<int>(n - i); rest > 0) {
    F32 pi = F32::load(p + i, rest);
    if constexpr (Momentum > 0) bi = F32::load(b + i, rest);
    sgd_vector<Momentum>(c, pi, F32::load(g + i, rest), bi);
    pi.store(p + i, rest);
    if constexpr (Momentum > 0) bi.store(b + i, rest);
  }
}

void sgd_loop(float* p, const float* g, float* b, std::int64_t n, const SgdArgs& a) {
  const auto of = [](double x) { return F32::of(static_cast<float>(x)); };
  const SgdVectors c{of(a.learning_rate), of(a.momentum), of(a.weight_decay), of(a.gradient_scale)};
  if (a.momentum == 0) return sgd_range<0>(c, p, g, b, n);
  return a.nesterov ? sgd_range<2>(c, p, g, b, n) : sgd_range<1>(c, p, g, b, n);
}

double sum_of_squares_loop(const float* x, std::int64_t n) {
  constexpr int lanes = 32;  // four accumulators of eight, on every instruction set
  F64x8 s[4] = {F64x8::zero(), F64x8::zero(), F64x8::zero(), F64x8::zero()};
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    for (int k = 0; k < 4; ++k) s[k].add_square(x + i + 8 * k);
  const int rest = static_cast<int>(n - i);
  for (int k = 0; 8 * k < rest; ++k) s[k].add_square(x + i + 8 * k, rest - 8 * k);
  double total[lanes];
  for (int k = 0; k < 4; ++k) s[k].get(total + 8 * k);
  for (int half = lanes / 2; half > 0; half /= 2)
    for (int j = 0; j < half; ++j) total[j] += total[j + half];
  return total[0];
}
