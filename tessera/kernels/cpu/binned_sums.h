#pragma once
/// \file
/// Many sums of non-negative floats at a time, without rounding, so the order of additions and their division among
/// threads and ranks do not matter. (Demmel & Nguyen's binned sums with bins at fixed exponents.)
///
/// A sum consists of 8 doubles, its bins: bin j holds multiples of its grid 2^(99 - 37 j), so adding to it is exact
/// while it holds fewer than 2^53 grids. An addend is split over the bins; every finite float fits (the lowest grid is
/// 2^-160). `bins` below means [bin_count][count].

#include <cstdint>

namespace tessera::kernels {

inline constexpr int bin_count = 8, bin_bits = 37, top_grid_exponent = 99;
/// The spacing of the numbers in bin j.
constexpr double bin_grid(int j) {
  double grid = 1;
  for (int e = top_grid_exponent - bin_bits * j; e > 0; --e) grid *= 2;
  for (int e = top_grid_exponent - bin_bits * j; e < 0; ++e) grid /= 2;
  return grid;
}
/// x + c - c rounds x to bin j's grid, for |x| < 2^51 grids.
constexpr double bin_rounder(int j) { return bin_grid(j) * 6755399441055744.0; }  // 1.5 * 2^52

/// The same as tables, for loops over bins.
inline constexpr double bin_grid_table[bin_count] = {bin_grid(0), bin_grid(1), bin_grid(2), bin_grid(3),
                                                     bin_grid(4), bin_grid(5), bin_grid(6), bin_grid(7)};
inline constexpr double bin_rounder_table[bin_count] = {bin_rounder(0), bin_rounder(1), bin_rounder(2), bin_rounder(3),
                                                        bin_rounder(4), bin_rounder(5), bin_rounder(6), bin_rounder(7)};

/// Moves excess from each bin into the next larger one, so that each bin except the top one is at most half a grid of
/// the next larger bin. 2^16 such sums can then be added exactly, bin by bin, in doubles.
void carry_bins(double* bins, std::int64_t count);
/// into += from for `count` sums, both carried before and after; bin j of sum i is at [j * stride + i].
void merge_bins(double* into, std::int64_t into_stride, const double* from, std::int64_t from_stride,
                std::int64_t count);
/// The sums' values, as doubles; `bins` is first carried to a unique form, so that equal sums give equal bits. A NaN or
/// infinity among the addends results in a NaN or infinity.
void bin_values(double* bins, std::int64_t count, double* values);

}  // namespace tessera::kernels
