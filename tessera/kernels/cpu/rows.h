#pragma once
/// \file
/// Small operations on rows: sums columns, and adds a row to every row.

#include <cstdint>

namespace tessera::kernels {

/// out[c] += sum over r of x[r, c]. x [rows, columns].
void column_sums(const float* x, float* out, std::int64_t rows, std::int64_t columns);

/// y = x + delta + bias. x, delta, y [rows, columns] (y may be one of them), bias [columns]; delta and bias may be
/// null.
void add_rows(const float* x, const float* delta, const float* bias, float* y, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels
