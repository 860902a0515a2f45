#pragma once
/// \file
/// Products in fp32 of groups of rows, each group with its own matrix. Used for experts if only the device knows how
/// many rows each expert has (LibTorch's grouped product supports only bf16). Sums are computed in fp32 in a fixed
/// order, regardless of the sizes of groups, so results are the same in every run and for every division into groups.
/// `ends` int32 [G]: the end of each group's rows. All pointers are on the device; the functions return before the work
/// is done, on `stream` (a cudaStream_t), and throw std::runtime_error with CUDA's message when the launch fails.

#include <cstdint>

namespace tessera::kernels::cuda {

/// y_g = x_g W_g^T, or x_g W_g, for the rows of every group. The last group ends at the last row.
struct GroupRows {
  const float* x;            ///< [rows, inner]
  const float* weights;      ///< [G, columns, inner]; not `transposed`: [G, inner, columns]
  const std::int32_t* ends;  ///< [G]
  float* y;                  ///< [rows, columns], written
  bool transposed;           ///< whether W_g is transposed
};
void group_rows(const GroupRows& a, std::int64_t rows, std::int64_t inner, std::int64_t columns, std::int64_t groups,
                void* stream);

/// sums_g = left_g^T right_g over the rows of every group; zeros for a group without rows.
struct GroupSums {
  const float* left;         ///< [rows, lines]
  const float* right;        ///< [rows, columns]
  const std::int32_t* ends;  ///< [G]
  float* sums;               ///< [G, lines, columns], written
};
void group_sums(const GroupSums& a, std::int64_t rows, std::int64_t lines, std::int64_t columns, std::int64_t groups,
                void* stream);

}  // namespace tessera::kernels::cuda
