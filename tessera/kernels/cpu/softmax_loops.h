#pragma once
/// \file
/// softmax_cross_entropy.h over F32. Included by loops.h inside the anonymous namespace of a table.

#include <tessera/kernels/cpu/exp_loops.h>
#include <tessera/kernels/cpu/for_vectors.h>

inline float row_max(const float* x, std::int64_t n) {
  F32 m[4];
  for (F32& v : m) v = F32::of(-__builtin_inff());
  std::int64_t i = 0;
  for (; i + 4 * F32::width <= n; i += 4 * F32::width)
    for (int k = 0; k < 4; ++k) m[k] = max(m[k], F32::load(x + i + k * F32::width));
  for (; i < n; i += F32::width) {
    const int rest = n - i < F32::width ? static_cast<int>(n - i) : F32::width;
    m[0] = max(m[0], keep(F32::load(x + i, rest), rest, m[0]));
  }
  return largest(max(max(m[0], m[1]), max(m[2], m[3])));
}

/// Sum of exp(x - shift); with Store, x becomes exp(x - shift).
template <bool Store>
inline float row_exp_sum(float* x, std::int64_t n, float shift) {
  const F32 s = F32::of(shift);
  F32 total[4];
  for (F32& v : total) v = F32::of(0);
  std::int64_t i = 0;
  for (; i + 4 * F32::width <= n; i += 4 * F32::width)
    for (int k = 0; k < 4; ++k) {
      float* p = x + i + k * F32::width;
      const F32 e = exp(F32::load(p) - s);
      if constexpr (Store) e.store(p);
      total[k] = total[k] + e;
    }
  for (; i < n; i += F32::width) {
    const int rest = n - i < F32::width ? static_cast<int>(n - i) : F32::width;
    const F32 e = exp(F32::load(x + i, rest) - s);
    if constexpr (Store) e.store(x + i, rest);
    total[0] = total[0] + keep(e, rest, F32::of(0));
  }
  return sum((total[0] + total[1]) + (total[2] + total[3]));
}

double softmax_cross_entropy_loop(float* logits, const std::int64_t* targets, std::int64_t rows, std::int64_t columns,
                                  float scale, bool gradient) {
  double loss = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    float* x = logits + r * columns;
    const std::int64_t target = targets[r];
    if (target < 0) {
      if (gradient) __builtin_memset(x, 0, static_cast<std::size_t>(columns) * sizeof(float));
      continue;
    }
    const float shift = row_max(x, columns), at_target = x[target];
    const float total = gradient ? row_exp_sum<true>(x, columns, shift) : row_exp_sum<false>(x, columns, shift);
    loss += __builtin_log(static_cast<double>(total)) + static_cast<double>(shift) - static_cast<double>(at_target);
    if (!gradient) continue;
    const F32 factor = F32::of(scale / total);
    for_vectors(columns, [&](std::int64_t i, int lanes) { (F32::load(x + i, lanes) * factor).store(x + i, lanes); });
    x[target] -= scale;
  }
  return loss;
}
