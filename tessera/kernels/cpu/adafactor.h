#pragma once
/// \file
/// The parts of an Adafactor update (Shazeer & Stern 2018; transformers/optimization.py, Adafactor.step). Sums over
/// whole parameters are needed between them, so the direction u is recomputed, chunk by chunk, as often as needed.

#include <cstdint>

namespace tessera::kernels {

/// Destination of the sums of squares of a matrix, as binned sums (binned_sums.h): bin j of row r is at row_bins[j *
/// row_stride + r], bin j of column c at column_bins[j * column_stride + c]. The 8 doubles after the last column of the
/// last bin are read and written, but not changed. For a batch of matrices of `period` rows each, row r adds to the
/// columns of matrix r / period, which follow those of the previous matrix.
struct BinnedMatrix {
  double* row_bins;
  std::int64_t row_stride;
  double* column_bins;
  std::int64_t column_stride;
  std::int64_t columns, period;
};
/// Adds the squares (in float, as torch computes them) of gradient_scale * g for elements [begin, begin + n) of the
/// flattened matrices to the sums of their rows and columns; g points to the first of these elements. Row sums are
/// carried on return; the caller must carry column sums before any of them gets 2^15 addends since its last carry.
void bin_squares(const float* g, float gradient_scale, std::int64_t begin, std::int64_t n, const BinnedMatrix& matrix);

/// u[i] = row_factor[r] * column_factor[c] * (gradient_scale * g[i]) for the n elements from `begin` of a matrix as
/// above; g and u point to the first of these elements.
struct Factors {
  const float* row;     ///< [rows]
  const float* column;  ///< [rows / period * columns]
  std::int64_t columns, period;
};
void factored_direction(const float* g, float gradient_scale, std::int64_t begin, std::int64_t n,
                        const Factors& factors, float* u);

/// Unfactored second moments: v += (gradient_scale^2 g^2 + epsilon - v) * rate, element by element.
void adafactor_moment(const float* g, float gradient_scale, float* v, std::int64_t n, double rate, double epsilon);
/// u = gradient_scale * g / sqrt(v).
void adafactor_direction(const float* g, float gradient_scale, const float* v, std::int64_t n, float* u);

struct AdafactorArgs {
  double rate = 0;   ///< learning rate divided by the clipping divisor of the update
  double decay = 0;  ///< weight decay times learning rate
  double beta1 = 0;
};
/// u *= rate;  if m: m += (u - m) * (1 - beta1), u = m;  p = p - decay * p - u. m may be null.
void adafactor_apply(float* p, const float* u, float* m, std::int64_t n, const AdafactorArgs& args);

}  // namespace tessera::kernels
