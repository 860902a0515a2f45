#pragma once
/// \file
/// rows.h over F32. Included by loops.h inside the anonymous namespace of a table.

#include <tessera/kernels/cpu/for_vectors.h>

void column_sums_loop(const float* x, float* out, std::int64_t rows, std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r, x += columns)
    for_vectors(columns, [&](std::int64_t i, int lanes) {
      (F32::load(out + i, lanes) + F32::load(x + i, lanes)).store(out + i, lanes);
    });
}

void add_rows_loop(const float* x, const float* delta, const float* bias, float* y, std::int64_t rows,
                   std::int64_t columns) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t o = r * columns;
    for_vectors(columns, [&](std::int64_t i, int lanes) {
      const F32 v = F32::load(x + o + i, lanes);
      F32 d = F32::of(0);
      if (delta) d = F32::load(delta + o + i, lanes);
      if (bias) d = d + F32::load(bias + i, lanes);
      (v + d).store(y + o + i, lanes);
    });
  }
}
