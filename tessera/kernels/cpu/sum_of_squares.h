#pragma once
/// \file
/// The sum of squares of a range, in double precision, in an order that does not depend on threads.

#include <cstdint>

namespace tessera::kernels {

/// Elements whose squares one partial sum holds. Threads may share out the blocks of a parameter; the partial sums are
/// then added in block order (DESIGN section 13: norms).
inline constexpr std::int64_t sum_block = 4096;

/// Sum of x[i]^2 over n elements in double precision. Lane j of 32 sums elements j, j+32, ...; lanes are then added
/// pairwise: the same bits on every instruction set.
double sum_of_squares(const float* x, std::int64_t n);

}  // namespace tessera::kernels
