#pragma once
/// \file
/// rms_norm.h over F32. Included by loops.h inside the anonymous namespace of a table.

#include <tessera/kernels/cpu/for_vectors.h>
#include <tessera/kernels/cpu/layer_norm_loops.h>

void rms_norm_loop(const RmsNormForward& a, std::int64_t rows, std::int64_t columns) {
  const float share = 1.0f / static_cast<float>(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t o = r * columns;
    const float* x = a.x + o;
    if (a.delta) {
      add_rows_loop(x, a.delta + o, nullptr, a.sum + o, 1, columns);
      x = a.sum + o;
    }
    const float square = sum_over(columns,
                                  [&](std::int64_t i, int lanes) {
                                    const F32 v = F32::load(x + i, lanes);
                                    return v * v;
                                  }) *
                         share;
    const float rstd = static_cast<float>(1.0 / __builtin_sqrt(static_cast<double>(square) + a.eps));
    const F32 s = F32::of(rstd);
    float* y = a.y + o;
    for_vectors(columns, [&](std::int64_t i, int lanes) {
      (F32::load(x + i, lanes) * s * F32::load(a.weight + i, lanes)).store(y + i, lanes);
    });
    a.rstd[r] = rstd;
  }
}

void rms_norm_backward_loop(const RmsNormBackward& a, std::int64_t rows, std::int64_t columns) {
  const float share = 1.0f / static_cast<float>(columns);
  for (std::int64_t r = 0; r < rows; ++r) {
    const float *x = a.sum + r * columns, *dy = a.dy + r * columns, *dsum = a.dsum ? a.dsum + r * columns : nullptr;
    float* dx = a.dx + r * columns;
    const F32 s = F32::of(a.rstd[r]);
    F32 gn_total = F32::of(0);
    for_vectors(columns, [&](std::int64_t i, int lanes) {  // loads set the lanes past the end to zero
      gn_total = fma(F32::load(dy + i, lanes) * F32::load(a.weight + i, lanes), F32::load(x + i, lanes) * s, gn_total);
    });
    const F32 average_gn = F32::of(sum(gn_total) * share);
    for_vectors(columns, [&](std::int64_t i, int lanes) {
      const F32 normed = F32::load(x + i, lanes) * s, d = F32::load(dy + i, lanes);
      F32 out = s * (d * F32::load(a.weight + i, lanes) - normed * average_gn);
      if (dsum) out = out + F32::load(dsum + i, lanes);
      out.store(dx + i, lanes);
      fma(d, normed, F32::load(a.dweight + i, lanes)).store(a.dweight + i, lanes);
    });
  }
}
