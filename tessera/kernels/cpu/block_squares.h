#pragma once
/// \file
/// Sums of squares of fixed blocks in double precision, from which norms are computed (docs/strategies.md).

#include <cstdint>

namespace tessera::kernels {

/// Elements of a parameter per sum of squares; shards are cut at multiples of this (layout::flat_alignment).
inline constexpr std::int64_t square_block = 64;

/// sums[b] = sum of x[i]^2 over i in [64 b, min(64 b + 64, n)), for the (n + 63) / 64 blocks of n elements. Squares of
/// floats are exact in double. Lane j of 32 adds elements j and j + 32; halves are then added until one lane is left,
/// so results are bitwise identical on every instruction set.
void block_squares(const float* x, std::int64_t n, double* sums);

}  // namespace tessera::kernels
