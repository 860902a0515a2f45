#pragma once
/// \file
/// layout/batch/: the rows of a step per rank and micro-batch, and the number of rows of a step. Pure arithmetic. This
/// header: shares of unequal ranks.
///
/// A step's rows have one order, independent of the ranks. They are cut into micro-batches, and a micro-batch into one
/// run of consecutive rows per rank, so unequal shares move the borders between ranks without adding or dropping a row.

#include <cstdint>
#include <vector>

namespace tessera::layout {

/// Performance of a rank: n rows take fixed_seconds + n seconds_per_row, and `most` rows fit into memory.
struct RankSpeed {
  double seconds_per_row = 1;     ///< positive
  double fixed_seconds = 0;       ///< independent of the number of rows
  std::int64_t most = INT64_MAX;  ///< rows that fit into its memory
};

/// Time of a step in which rank r takes shares[r] rows, that is, the time of the slowest rank.
double slowest_seconds(const std::vector<RankSpeed>& speeds, const std::vector<std::int64_t>& shares);

/// Divides `rows` rows into shares of at least `least` and at most speeds[r].most each, minimizing slowest_seconds()
/// over whole rows: fills all ranks to the same level (water filling), rounded down, and gives the remainder row by row
/// to the rank that would finish first (on ties, the first rank). Throws InputError if the bounds are infeasible, or a
/// speed is not a positive number. O(ranks log rows).
std::vector<std::int64_t> batch_shares(const std::vector<RankSpeed>& speeds, std::int64_t rows, std::int64_t least);

/// Returns rows / ranks for each rank; the first ranks take the remainder.
std::vector<std::int64_t> equal_shares(std::int64_t rows, std::int64_t ranks);

/// Rows [begin, begin + count) of a step.
struct RowRange {
  std::int64_t begin = 0, count = 0;  ///< begin is relative to the first row of the step
  bool operator==(const RowRange&) const = default;
};

/// The rows of `rank` in micro-batch `micro` of `micro_batches`: every rank's share is spread evenly over its
/// micro-batches, and the rows of a micro-batch go to the ranks in order. With equal shares that are a multiple of
/// micro_batches, micro-batch a takes rows / micro_batches rows, of which rank r takes the r-th part.
RowRange rows_of_micro_batch(const std::vector<std::int64_t>& shares, std::int64_t micro_batches, std::int64_t micro,
                             std::int64_t rank);

}  // namespace tessera::layout
