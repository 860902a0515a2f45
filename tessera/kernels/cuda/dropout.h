#pragma once
/// \file
/// Dropout and uniform numbers by place, with the bits of the CPU's (kernels/cpu/dropout.h: the formulas and their
/// sources, which both share).

#include <tessera/kernels/cuda/reals.h>

#include <cstdint>

namespace tessera::kernels::cuda {

/// Lines of numbers [rows, tokens, columns], or [rows, heads, tokens, columns] (attention weights: a token is a query,
/// a column a key). The key of a line is mixed_key(mixed_key(key, row), position of the token), and with heads
/// mixed_key() of that and the head.
struct RandomLines {
  std::int64_t rows = 0, heads = 0;  ///< heads 0: lines have none
  std::int64_t tokens = 0, columns = 0;
  std::uint64_t key = 0;
  std::int64_t row = 0, head = 0;                  ///< numbers of the first row and head
  std::int64_t token = 0;                          ///< position of the first token, where there are no `positions`
  std::int64_t column = 0;                         ///< number of the first column, where there are no column_positions
  const std::int64_t* positions = nullptr;         ///< [tokens], on the device; null: consecutive ones
  const std::int64_t* column_positions = nullptr;  ///< [columns], on the device; null: consecutive ones
};

/// y = 0 where the number is below `limit`, else x * scale, rounded once. y may be x. Both are contiguous, of one type.
/// In the order of `stream` (a cudaStream_t); returns before it is done. Throws std::runtime_error with CUDA's words
/// when the launch fails.
void dropout(ConstReals x, Reals y, RandomLines lines, std::uint32_t limit, float scale, void* stream);

/// y = the upper 24 bits of the number, in [0, 1): kernels::uniform. Otherwise as dropout().
void uniform(float* y, RandomLines lines, void* stream);

}  // namespace tessera::kernels::cuda
