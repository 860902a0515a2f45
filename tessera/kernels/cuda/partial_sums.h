#pragma once
/// \file
/// The second step of sums over rows: adds the sums of all groups of rows in a fixed order.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// The column sums of one pass: at most three, [columns] each.
struct ColumnSums {
  static constexpr int most = 3;
  Reals sum[most];  ///< written; null: skipped
};

/// sums.sum[s][c] = sum over g of partial[g, s, c], partial [groups, sums, columns], on `stream` (a cudaStream_t).
/// Throws std::runtime_error with CUDA's message when the launch fails.
void add_partial_sums(const float* partial, const ColumnSums& to, std::int64_t groups, int sums, std::int64_t columns,
                      void* stream);

/// Number of groups that the rows of a pass are divided into: enough to fill an H100/H200 with four columns per thread,
/// but with at least 16 rows per group if there are that many.
constexpr std::int64_t row_groups(std::int64_t rows, std::int64_t columns) {
  constexpr std::int64_t multiprocessors = 132, threads = 1024;
  const std::int64_t of_columns = multiprocessors * threads * 4 / columns, of_rows = (rows + 15) / 16;
  const std::int64_t most = of_columns < multiprocessors ? multiprocessors : of_columns < 4224 ? of_columns : 4224;
  return of_rows < most ? of_rows : most;
}

}  // namespace tessera::kernels::cuda
