#pragma once
/// \file
/// Permutes rows of tokens into the order of their experts, and back (mixture of experts). Slot n k + j is the j-th
/// expert of token n; row_of[slot] is the slot's row, or -1 for none. The loops are plain because they are
/// memory-bound.

#include <cstdint>

namespace tessera::kernels {

/// y[r] = weights[slots[r]] * x[slots[r] / k] for `rows` rows of `columns`; weights null: 1; a slot of -1: zeros.
void gather_slots(const float* x, const std::int64_t* slots, const float* weights, float* y, std::int64_t rows,
                  std::int64_t k, std::int64_t columns);

/// y[n] = sum over j, in order, of weights[n k + j] * x[row_of[n k + j]]; weights null: 1.
void sum_slots(const float* x, const std::int64_t* row_of, const float* weights, float* y, std::int64_t tokens,
               std::int64_t k, std::int64_t columns);

/// out[n k + j] = <x[row_of[n k + j]], y[n]>; 0 for a slot without a row.
void dot_slots(const float* x, const std::int64_t* row_of, const float* y, float* out, std::int64_t tokens,
               std::int64_t k, std::int64_t columns);

}  // namespace tessera::kernels
