#pragma once
/// \file
/// Sums of squares in double precision over F64x8 (block_squares.h; bin_squares of adafactor.h). Included by loops.h
/// inside the anonymous namespace of a table.

inline __attribute__((always_inline)) double sum_of_block(const float* x, int n) {
  F64x8 s[4] = {F64x8::zero(), F64x8::zero(), F64x8::zero(), F64x8::zero()};
  if (n >= static_cast<int>(square_block)) {
    for (int k = 0; k < 8; ++k) s[k % 4].add_square(x + 8 * k);
  } else {
    for (int k = 0; 8 * k < n; ++k) s[k % 4].add_square(x + 8 * k, n - 8 * k);
  }
  return ((s[0] + s[2]) + (s[1] + s[3])).sum();
}

void block_squares_loop(const float* x, std::int64_t n, double* sums) {
  std::int64_t i = 0;
  for (; i + square_block <= n; i += square_block) *sums++ = sum_of_block(x + i, square_block);
  if (i < n) *sums = sum_of_block(x + i, static_cast<int>(n - i));
}

/// Adds 64 squares to the bins of their columns and of one row; the first `width` are used, and the rest are zeros.
inline __attribute__((always_inline)) void bin_chunk(const float* squares, int width, double* column_bins,
                                                     std::int64_t stride, F64x8 (&row)[bin_count], int& first_bin) {
  F32 greatest = F32::of(0);
  for (int i = 0; i < 64; i += F32::width) greatest = max(greatest, F32::load(squares + i));
  const double top = largest(greatest);
  int bin = 0;
  while (bin < bin_count && top <= 0.5 * bin_grid_table[bin]) ++bin;  // bins that would receive nothing
  if (bin < first_bin) first_bin = bin;
  const int vectors = (width + 7) / 8;
  F64x8 rest[8];
  for (int k = 0; k < 8; ++k) rest[k] = F64x8::of_floats(squares + 8 * k);
  for (bool more = true; more && bin < bin_count; ++bin) {
    const F64x8 rounder = F64x8::of(bin_rounder_table[bin]);
    double* column = column_bins + bin * stride;
    F64x8 left = F64x8::zero(), sum = F64x8::zero();
    const auto split = [&](int k) __attribute__((always_inline)) {
      const F64x8 part = (rest[k] + rounder) - rounder;
      rest[k] = rest[k] - part;
      left = left | rest[k];
      sum = sum + part;
      (F64x8::load(column + 8 * k) + part).store(column + 8 * k);
    };
    if (vectors == 8)
      for (int k = 0; k < 8; ++k) split(k);
    else
      for (int k = 0; k < vectors; ++k) split(k);
    row[bin] = row[bin] + sum;
    more = left.any();
  }
}

void bin_squares_loop(const float* g, float gradient_scale, std::int64_t begin, std::int64_t n, const BinnedMatrix& m) {
  constexpr std::int64_t chunk = 64, most_addends = 8192;  // maximum number of addends of a row sum before it is
                                                           // carried
  const F32 scale = F32::of(gradient_scale);
  for (std::int64_t i = 0; i < n;) {
    const std::int64_t index = begin + i, r = index / m.columns, c = index % m.columns;
    std::int64_t count = m.columns - c < n - i ? m.columns - c : n - i;
    if (count > most_addends) count = most_addends;
    double* column_bins = m.column_bins + r / m.period * m.columns + c;
    F64x8 row[bin_count];
    for (F64x8& bin : row) bin = F64x8::zero();
    int first_bin = bin_count;
    for (std::int64_t k = 0; k < count; k += chunk) {
      const int width = static_cast<int>(count - k < chunk ? count - k : chunk);
      float x[chunk] = {};
      for_vectors(width, [&](std::int64_t v, int lanes) __attribute__((always_inline)) {
        const F32 scaled = F32::load(g + i + k + v, lanes) * scale;
        (scaled * scaled).store(x + v, lanes);
      });
      bin_chunk(x, width, column_bins + k, m.column_stride, row, first_bin);
    }
    for (int j = first_bin; j < bin_count; ++j) m.row_bins[j * m.row_stride + r] += row[j].sum();
    for (int j = bin_count - 1; j > 0; --j) {  // carry_bins() of one sum
      double &low = m.row_bins[j * m.row_stride + r], &high = m.row_bins[(j - 1) * m.row_stride + r];
      const double carried = (low + bin_rounder_table[j - 1]) - bin_rounder_table[j - 1];
      low -= carried;
      high += carried;
    }
    i += count;
  }
}
