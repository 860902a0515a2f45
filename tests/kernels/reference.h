#pragma once
/// \file
/// References for the kernels: the plainest loops, in double precision.

#include <tessera/kernels/cpu/dispatch.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

namespace reference {

using tessera::kernels::AdagradArgs;
using tessera::kernels::AdamwArgs;
using tessera::kernels::LionArgs;
using tessera::kernels::RmspropArgs;
using tessera::kernels::SgdArgs;
using Doubles = std::vector<double>;
using Floats = std::vector<float>;

inline Floats random(std::int64_t n, unsigned seed, float scale = 1, float shift = 0) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal(shift, scale);
  Floats out(static_cast<std::size_t>(n));
  for (float& x : out) x = normal(engine);
  return out;
}
inline Doubles doubles(const Floats& x) { return {x.begin(), x.end()}; }

inline void adamw(Doubles& p, const Doubles& g, Doubles& m, Doubles& v, const AdamwArgs& a) {
  const double c1 = 1 - std::pow(a.beta1, a.step), c2 = 1 - std::pow(a.beta2, a.step);
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double gi = g[i] * a.gradient_scale + (a.decay_in_gradient ? a.weight_decay * p[i] : 0);
    if (!a.decay_in_gradient) p[i] *= 1 - a.learning_rate * a.weight_decay;
    m[i] = a.beta1 * m[i] + (1 - a.beta1) * gi;
    v[i] = a.beta2 * v[i] + (1 - a.beta2) * gi * gi;
    p[i] -= a.learning_rate / c1 * m[i] / (std::sqrt(v[i]) / std::sqrt(c2) + a.epsilon);
  }
}

inline void sgd(Doubles& p, const Doubles& g, Doubles& b, const SgdArgs& a) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    double gi = g[i] * a.gradient_scale + a.weight_decay * p[i];
    if (a.momentum != 0) {
      b[i] = a.momentum * b[i] + gi;
      gi = a.nesterov ? gi + a.momentum * b[i] : b[i];
    }
    p[i] -= a.learning_rate * gi;
  }
}

inline void lion(Doubles& p, const Doubles& g, Doubles& m, const LionArgs& a) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double gi = g[i] * a.gradient_scale, u = a.beta1 * m[i] + (1 - a.beta1) * gi;
    p[i] = p[i] * (1 - a.learning_rate * a.weight_decay) - a.learning_rate * (u > 0 ? 1 : u < 0 ? -1 : 0);
    m[i] = a.beta2 * m[i] + (1 - a.beta2) * gi;
  }
}

inline void adagrad(Doubles& p, const Doubles& g, Doubles& s, const AdagradArgs& a) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double gi = g[i] * a.gradient_scale + a.weight_decay * p[i];
    s[i] += gi * gi;
    p[i] -= a.learning_rate * gi / (std::sqrt(s[i]) + a.epsilon);
  }
}

/// m, b: empty if not used.
inline void rmsprop(Doubles& p, const Doubles& g, Doubles& v, Doubles& m, Doubles& b, const RmspropArgs& a) {
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double gi = g[i] * a.gradient_scale + a.weight_decay * p[i];
    v[i] = a.alpha * v[i] + (1 - a.alpha) * gi * gi;
    if (!m.empty()) m[i] = a.alpha * m[i] + (1 - a.alpha) * gi;
    double step = gi / (std::sqrt(v[i] - (m.empty() ? 0 : m[i] * m[i])) + a.epsilon);
    if (!b.empty()) step = b[i] = a.momentum * b[i] + step;
    p[i] -= a.learning_rate * step;
  }
}

/// LAMB's direction, after the update of m and v.
inline Doubles lamb_direction(const Doubles& p, const Doubles& g, Doubles& m, Doubles& v, const AdamwArgs& a) {
  const double c1 = a.step == 0 ? 1 : 1 - std::pow(a.beta1, a.step),
               c2 = a.step == 0 ? 1 : 1 - std::pow(a.beta2, a.step);
  Doubles u(p.size());
  for (std::size_t i = 0; i < p.size(); ++i) {
    const double gi = g[i] * a.gradient_scale;
    m[i] = a.beta1 * m[i] + (1 - a.beta1) * gi;
    v[i] = a.beta2 * v[i] + (1 - a.beta2) * gi * gi;
    u[i] = m[i] / c1 / (std::sqrt(v[i] / c2) + a.epsilon) + a.weight_decay * p[i];
  }
  return u;
}

/// Returns the sum of the losses; x becomes the gradient.
inline double softmax_cross_entropy(Doubles& x, const std::vector<std::int64_t>& targets, std::size_t columns,
                                    double scale) {
  double loss = 0;
  for (std::size_t r = 0; r < targets.size(); ++r) {
    double* row = x.data() + r * columns;
    if (targets[r] < 0) {
      for (std::size_t c = 0; c < columns; ++c) row[c] = 0;
      continue;
    }
    double largest = row[0], total = 0;
    for (std::size_t c = 0; c < columns; ++c) largest = std::max(largest, row[c]);
    for (std::size_t c = 0; c < columns; ++c) total += std::exp(row[c] - largest);
    loss += std::log(total) + largest - row[targets[r]];
    for (std::size_t c = 0; c < columns; ++c)
      row[c] = scale * (std::exp(row[c] - largest) / total - (static_cast<std::int64_t>(c) == targets[r] ? 1 : 0));
  }
  return loss;
}

inline double gelu(double u) { return 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u))); }
inline double gelu_slope(double u) {
  const double t = std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u));
  return 0.5 * (1 + t) + 0.5 * u * (1 - t * t) * std::sqrt(2 / M_PI) * (1 + 3 * 0.044715 * u * u);
}

/// Largest |a - b| / (scale + |b|); infinity if it is NaN.
template <class A, class B>
double error(const A& a, const B& b, double scale = 1) {
  double worst = a.size() == b.size() ? 0 : INFINITY;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    const double e =
        std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])) / (scale + std::abs(static_cast<double>(b[i])));
    if (!(e <= worst)) worst = std::isnan(e) ? INFINITY : e;
  }
  return worst;
}

}  // namespace reference
