#pragma once
/// \file
/// Joins matrices side by side into one and sums its columns in one pass: gradients of queries, keys and values become
/// the gradient of one linear map's output, and of its bias.
///
/// Functions return before the work is done, on `stream` (a cudaStream_t), and throw std::runtime_error with CUDA's
/// message when a launch fails. Four elements are read at a time if `columns` and all pointers allow it.

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// joined[r, p columns + c] = part[p][r, c]; sums[c] is the sum of joined[r, c] over r, added in fp32.
struct ColumnJoin {
  static constexpr int most = 3;
  ConstReals part[most] = {};  ///< each [rows, columns], contiguous; the first `parts` are used
  int parts = most;
  Reals joined = {};         ///< [rows, parts columns], contiguous, written
  Reals sums = {};           ///< [parts columns], written; may be null
  float* partial = nullptr;  ///< scratch of joined_partial_sums() floats; null if sums is null
};
/// `columns`: columns of one part.
void join_columns(const ColumnJoin& a, std::int64_t rows, std::int64_t columns, void* stream);

/// Length of ColumnJoin::partial, in floats; a function of the shape.
std::int64_t joined_partial_sums(int parts, std::int64_t rows, std::int64_t columns);

}  // namespace tessera::kernels::cuda
