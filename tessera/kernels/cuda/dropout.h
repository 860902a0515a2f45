#pragma once
/// \file
/// Dropout and uniform random numbers by position, bitwise the same as on the CPU (see kernels/cpu/dropout.h for the
/// shared formulas and their sources).

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// Lines of numbers [rows, tokens, columns], or [rows, heads, tokens, columns] (attention weights: a token is a query,
/// a column a key). The key of a line is mixed_key(mixed_key(key, row), position of the token) or, with heads,
/// mixed_key() of that and the head.
struct RandomLines {
  std::int64_t rows = 0, heads = 0;  ///< heads 0: lines without heads
  std::int64_t tokens = 0, columns = 0;
  std::uint64_t key = 0;
  std::int64_t row = 0, head = 0;                  ///< indices of the first row and head
  std::int64_t token = 0;                          ///< position of the first token, if `positions` is null
  std::int64_t column = 0;                         ///< index of the first column, if `column_positions` is null
  const std::int64_t* positions = nullptr;         ///< [tokens], on the device; null: consecutive
  const std::int64_t* column_positions = nullptr;  ///< [columns], on the device; null: consecutive
};

/// y = 0 where the random number is below `limit`, else x * scale, rounded once. y may be x. Both are contiguous and of
/// the same type. Runs on `stream` (a cudaStream_t); returns before the work is done. Throws std::runtime_error with
/// CUDA's message when the launch fails.
void dropout(ConstReals x, Reals y, RandomLines lines, std::uint32_t limit, float scale, void* stream);

/// y = the upper 24 bits of the random number, in [0, 1): kernels::uniform. Otherwise as dropout().
void uniform(float* y, RandomLines lines, void* stream);

}  // namespace tessera::kernels::cuda
