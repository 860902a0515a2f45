#pragma once
/// \file
/// layer_norm.h over F32. Included by loops.h inside the anonymous namespace of a table.

#include <tessera/kernels/cpu/for_vectors.h>
#include <tessera/kernels/cpu/row_loops.h>

template <class F>
inline __attribute__((always_inline)) float sum_over(std::int64_t n, const F& term) {
  F32 total = F32::of(0);
  for_vectors(n, [&](std::int64_t i, int lanes) { total = total + keep(term(i, lanes), lanes, F32::of(0)); });
  return sum(total);
}

void layer_norm_loop(const LayerNormForward& a, std::int64_t rows, std::int64_t columns) {
  const float share = 1.0f / static_cast<float>(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t o = r * columns;
    const float* x = a.x + o;
    if (a.delta) {
      add_rows_loop(x, a.delta + o, a.delta_bias, a.sum + o, 1, columns);
      x = a.sum + o;
    }
    const float mean = sum_over(columns, [&](std::int64_t i, int lanes) { return F32::load(x + i, lanes); }) * share;
    const F32 m = F32::of(mean);
    const float variance = sum_over(columns,
                                    [&](std::int64_t i, int lanes) {
                                      const F32 d = F32::load(x + i, lanes) - m;
                                      return d * d;
                                    }) *
                           share;
    const float rstd = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(variance) + a.eps));
    const F32 s = F32::of(rstd);
    float* y = a.y + o;
    for_vectors(columns, [&](std::int64_t i, int lanes) {
      const F32 v =
          fma((F32::load(x + i, lanes) - m) * s, F32::load(a.weight + i, lanes), F32::load(a.bias + i, lanes));
      v.store(y + i, lanes);
    });
    a.mean[r] = mean;
    a.rstd[r] = rstd;
  }
}

void layer_norm_backward_loop(const LayerNormBackward& a, std::int64_t rows, std::int64_t columns) {
  const float share = 1.0f / static_cast<float>(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *x = a.sum + r * columns, *dy = a.dy + r * columns, *dsum = a.dsum ? a.dsum + r * columns : nullptr;
    float* dx = a.dx + r * columns;
    const F32 m = F32::of(a.mean[r]), s = F32::of(a.rstd[r]);
    F32 g_total = F32::of(0), gn_total = F32::of(0);
    for_vectors(columns, [&](std::int64_t i, int lanes) {  // loads set the lanes past the end to zero, so g = 0 there
      const F32 g = F32::load(dy + i, lanes) * F32::load(a.weight + i, lanes);
      g_total = g_total + g;
      gn_total = fma(g, (F32::load(x + i, lanes) - m) * s, gn_total);
    });
    const F32 average_g = F32::of(sum(g_total) * share), average_gn = F32::of(sum(gn_total) * share);
    for_vectors(columns, [&](std::int64_t i, int lanes) {
      const F32 normed = (F32::load(x + i, lanes) - m) * s, d = F32::load(dy + i, lanes);
      F32 out = s * (d * F32::load(a.weight + i, lanes) - average_g - normed * average_gn);
      if (dsum) out = out + F32::load(dsum + i, lanes);
      out.store(dx + i, lanes);
      fma(d, normed, F32::load(a.dweight + i, lanes)).store(a.dweight + i, lanes);
      (F32::load(a.dbias + i, lanes) + d).store(a.dbias + i, lanes);
      if (a.ddelta_bias) (F32::load(a.ddelta_bias + i, lanes) + out).store(a.ddelta_bias + i, lanes);
    });
  }
}
