#pragma once
/// \file
/// Random numbers that a captured step draws by place (nn/dropout.h), different in every run.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace tessera::xla {

/// A value's index in Graph::values.
using ValueId = std::int32_t;
constexpr ValueId no_value = -1;  ///< an absent tensor

/// Lines of random numbers, which an operator "kept" reads. A line's key mixes the pass's key with `numbers`, the row,
/// the token's position and, for attention weights, the head. The keys are passed as two int32 arguments of sizes
/// `lines`: their lower and their upper 32 bits.
struct Draw {
  std::vector<std::uint64_t> numbers;
  std::int64_t row = 0, token = 0, head = 0;
  std::vector<std::int64_t> positions;  ///< token positions in their row; empty: token, token + 1, ...
  std::vector<std::int64_t> lines;      ///< [rows, tokens] or [rows, heads, queries]
  ValueId low = no_value, high = no_value;
};

/// A pass's key, and its first row.
struct Pass {
  std::uint64_t key = 0;
  std::int64_t first_row = 0;
};
/// The keys of all lines of `draws`, whose rows are those of `passes`, one after the other and as many of each: int32
/// [2 x lines], first all lower halves, then all upper ones.
at::Tensor keys(const std::vector<Draw>& draws, const std::vector<Pass>& passes);

}  // namespace tessera::xla
