#pragma once
/// \file
/// Elementwise updates over F32 (adamw.h, sgd.h, lion.h, adagrad.h, rmsprop.h). Included by loops.h inside the
/// anonymous namespace of a table. Full vectors and the masked tail run the same function, so all elements are rounded
/// in the same way.

#include <tessera/kernels/cpu/state_loops.h>

inline F32 rounded(double x) { return F32::of(static_cast<float>(x)); }  // scalars are computed in double, as in Python

struct AdamwVectors {
  F32 decay, gradient_decay, one_minus_beta1, beta2, one_minus_beta2, step_size, sqrt_correction2, epsilon,
      gradient_scale;
};

inline AdamwVectors adamw_vectors(const AdamwArgs& a) {
  const double correction1 = a.step == 0 ? 1 : 1 - __builtin_pow(a.beta1, static_cast<double>(a.step));
  const double correction2 = a.step == 0 ? 1 : 1 - __builtin_pow(a.beta2, static_cast<double>(a.step));
  return {rounded(1 - a.learning_rate * a.weight_decay),
          rounded(a.weight_decay),
          rounded(1 - a.beta1),
          rounded(a.beta2),
          rounded(1 - a.beta2),
          rounded(a.learning_rate / correction1),
          rounded(__builtin_sqrt(correction2)),
          rounded(a.epsilon),
          rounded(a.gradient_scale)};
}

/// Bitwise the same as kernels/cuda/adamw.cu: fma() marks where a product and a sum are rounded only once.
template <bool DecayInGradient>
inline __attribute__((always_inline)) void adamw_vector(const AdamwVectors& c, F32& p, F32 g, F32& m, F32& v) {
  g = g * c.gradient_scale;
  if constexpr (DecayInGradient) g = fma(p, c.gradient_decay, g);
  m = fma(g - m, c.one_minus_beta1, m);
  v = fma(g * c.one_minus_beta2, g, v * c.beta2);
  const F32 denominator = sqrt(v) / c.sqrt_correction2 + c.epsilon;
  const F32 step = c.step_size * m / denominator;
  p = DecayInGradient ? p - step : fma(p, c.decay, F32::of(-1) * step);
}

template <bool DecayInGradient, class States>
void adamw_range(const AdamwVectors& c, float* p, const float* g, const States& states, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    F32 pi = F32::load(p + i, lanes), m = states.load_a(i, lanes), v = states.load_b(i, lanes);
    adamw_vector<DecayInGradient>(c, pi, F32::load(g + i, lanes), m, v);
    pi.store(p + i, lanes);
    states.store_both(i, lanes, m, v);
  });
}

void adamw_loop(float* p, const float* g, float* m, float* v, std::int64_t n, const AdamwArgs& a) {
  const AdamwVectors c = adamw_vectors(a);
  const Fp32States states{m, v};
  return a.decay_in_gradient ? adamw_range<true>(c, p, g, states, n) : adamw_range<false>(c, p, g, states, n);
}

void adamw_bf16_loop(float* p, const float* g, std::uint16_t* m, std::uint16_t* v, std::int64_t n, const AdamwArgs& a,
                     const Bf16Rounding& rounding) {
  const AdamwVectors c = adamw_vectors(a);
  with_bf16_states(m, v, n, rounding, [&](const auto& states, std::int64_t offset, std::int64_t count) {
    return a.decay_in_gradient ? adamw_range<true>(c, p + offset, g + offset, states, count)
                               : adamw_range<false>(c, p + offset, g + offset, states, count);
  });
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

template <int Momentum, class States>
void sgd_range(const SgdVectors& c, float* p, const float* g, const States& states, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    F32 pi = F32::load(p + i, lanes), b = F32::of(0);
    if constexpr (Momentum > 0) b = states.load_a(i, lanes);
    sgd_vector<Momentum>(c, pi, F32::load(g + i, lanes), b);
    pi.store(p + i, lanes);
    if constexpr (Momentum > 0) states.store_a(i, lanes, b);
  });
}

inline SgdVectors sgd_vectors(const SgdArgs& a) {
  return {rounded(a.learning_rate), rounded(a.momentum), rounded(a.weight_decay), rounded(a.gradient_scale)};
}

void sgd_loop(float* p, const float* g, float* b, std::int64_t n, const SgdArgs& a) {
  const SgdVectors c = sgd_vectors(a);
  const Fp32States states{b, nullptr};
  if (a.momentum == 0) return sgd_range<0>(c, p, g, states, n);
  return a.nesterov ? sgd_range<2>(c, p, g, states, n) : sgd_range<1>(c, p, g, states, n);
}

void sgd_bf16_loop(float* p, const float* g, std::uint16_t* b, std::int64_t n, const SgdArgs& a,
                   const Bf16Rounding& rounding) {
  const SgdVectors c = sgd_vectors(a);
  with_bf16_states(b, nullptr, n, rounding, [&](const auto& states, std::int64_t offset, std::int64_t count) {
    return a.nesterov ? sgd_range<2>(c, p + offset, g + offset, states, count)
                      : sgd_range<1>(c, p + offset, g + offset, states, count);
  });
}

struct LionVectors {
  F32 decay, learning_rate, one_minus_beta1, one_minus_beta2, gradient_scale;
};

template <class States>
void lion_range(const LionVectors& c, float* p, const float* g, const States& states, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    const F32 m = states.load_a(i, lanes), change = F32::load(g + i, lanes) * c.gradient_scale - m;
    const F32 direction = sign(fma(change, c.one_minus_beta1, m));
    (F32::load(p + i, lanes) * c.decay - c.learning_rate * direction).store(p + i, lanes);
    states.store_a(i, lanes, fma(change, c.one_minus_beta2, m));
  });
}

inline LionVectors lion_vectors(const LionArgs& a) {
  return {rounded(1 - a.learning_rate * a.weight_decay), rounded(a.learning_rate), rounded(1 - a.beta1),
          rounded(1 - a.beta2), rounded(a.gradient_scale)};
}

void lion_loop(float* p, const float* g, float* m, std::int64_t n, const LionArgs& a) {
  lion_range(lion_vectors(a), p, g, Fp32States{m, nullptr}, n);
}

void lion_bf16_loop(float* p, const float* g, std::uint16_t* m, std::int64_t n, const LionArgs& a,
                    const Bf16Rounding& rounding) {
  const LionVectors c = lion_vectors(a);
  with_bf16_states(m, nullptr, n, rounding, [&](const auto& states, std::int64_t offset, std::int64_t count) {
    lion_range(c, p + offset, g + offset, states, count);
  });
}

void adagrad_loop(float* p, const float* g, float* s, std::int64_t n, const AdagradArgs& a) {
  const F32 learning_rate = rounded(a.learning_rate), epsilon = rounded(a.epsilon), decay = rounded(a.weight_decay),
            scale = rounded(a.gradient_scale);
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    const F32 pi = F32::load(p + i, lanes), gi = fma(pi, decay, F32::load(g + i, lanes) * scale);
    const F32 sum = fma(gi, gi, F32::load(s + i, lanes));
    (pi - learning_rate * gi / (sqrt(sum) + epsilon)).store(p + i, lanes);
    sum.store(s + i, lanes);
  });
}

struct RmspropVectors {
  F32 learning_rate, alpha, one_minus_alpha, epsilon, momentum, weight_decay, gradient_scale;
};

template <bool Centered, bool Momentum>
void rmsprop_range(const RmspropVectors& c, float* p, const float* g, float* v, float* a, float* b, std::int64_t n) {
  for_vectors(n, [&](std::int64_t i, int lanes) __attribute__((always_inline)) {
    const F32 pi = F32::load(p + i, lanes), gi = fma(pi, c.weight_decay, F32::load(g + i, lanes) * c.gradient_scale);
    const F32 square = fma(gi * c.one_minus_alpha, gi, F32::load(v + i, lanes) * c.alpha);
    square.store(v + i, lanes);
    F32 spread = square;
    if constexpr (Centered) {
      const F32 before = F32::load(a + i, lanes), mean = fma(gi - before, c.one_minus_alpha, before);
      mean.store(a + i, lanes);
      spread = square - mean * mean;
    }
    F32 step = gi / (sqrt(spread) + c.epsilon);
    if constexpr (Momentum) {
      step = fma(F32::load(b + i, lanes), c.momentum, step);
      step.store(b + i, lanes);
    }
    (pi - c.learning_rate * step).store(p + i, lanes);
  });
}

void rmsprop_loop(float* p, const float* g, float* v, float* a, float* b, std::int64_t n, const RmspropArgs& x) {
  const RmspropVectors c{rounded(x.learning_rate), rounded(x.alpha),    rounded(1 - x.alpha),
                         rounded(x.epsilon),       rounded(x.momentum), rounded(x.weight_decay),
                         rounded(x.gradient_scale)};
  if (a == nullptr)
    return b == nullptr ? rmsprop_range<false, false>(c, p, g, v, a, b, n)
                        : rmsprop_range<false, true>(c, p, g, v, a, b, n);
  return b == nullptr ? rmsprop_range<true, false>(c, p, g, v, a, b, n)
                      : rmsprop_range<true, true>(c, p, g, v, a, b, n);
}
