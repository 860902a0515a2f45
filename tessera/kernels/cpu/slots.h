#pragma once
/// \file
/// Rows of tokens in the order of the experts that they go to, and back (mixture of experts). Slot n k + j is the j-th
/// expert of token n; row_of[slot] is the row where it lies, -1: nowhere. Plain loops: they wait for memory.

#include <cstdint>

namespace tessera::kernels {

/// y[r] = weights[slots[r]] * x[slots[r] / k] for `rows` rows of `columns`; weights null: 1; a slot of -1: zeros.
void gather_slots(const float* x, const std::int64_t* slots, const float* weights, float* y, std::int64_t rows,
                  std::int64_t k, std::int64_t columns);

/// y[n] = sum over j, in their order, of weights[n k + j] * x[row_of[n k + j]]; weights null: 1.
void sum_slots(const float* x, const std::int64_t* row_of, const float* weights, float* y, std::int64_t tokens,
               std::int64_t k, std::int64_t columns);

/// out[n k + j] = <x[row_of[n k + j]], y[n]>; 0 for a slot that lies nowhere.
void dot_slots(const float* x, const std::int64_t* row_of, const float* y, float* out, std::int64_t tokens,
               std::int64_t k, std::int64_t columns);

}  // namespace tessera::kernels
