#pragma once
/// \file
/// layout/batch/: which rows of a step lie on which rank, in which micro-batch; how many rows a step has. Pure
/// arithmetic. This header: shares of unequal ranks.
///
/// A step's rows are in one order, whoever takes them. It is cut into micro-batches, and a micro-batch into one run of
/// consecutive rows for every rank, so that unequal shares move borders between ranks and neither add nor drop a row.

#include <cstdint>
#include <vector>

namespace tessera::layout {

/// What a rank can do: n rows take fixed_seconds + n seconds_per_row, and it has memory for `most`.
struct RankSpeed {
  double seconds_per_row = 1;     ///< positive
  double fixed_seconds = 0;       ///< whatever the number of rows
  std::int64_t most = INT64_MAX;  ///< rows that fit into its memory
};

/// The time of a step in which rank r takes shares[r] rows: that of the slowest, which all wait for.
double slowest_seconds(const std::vector<RankSpeed>& speeds, const std::vector<std::int64_t>& shares);

/// `rows` rows in shares of at least `least` and at most speeds[r].most each, such that slowest_seconds() is as small
/// as whole rows allow: the level to which all ranks can be filled (as water fills a vessel), rounded down, and what is
/// left one by one to the rank that then ends first, of equal ones to the first. Throws InputError when the bounds
/// leave no choice, or a speed is not a positive number. O(ranks log rows).
std::vector<std::int64_t> batch_shares(const std::vector<RankSpeed>& speeds, std::int64_t rows, std::int64_t least);

/// rows / ranks each; the first ones take what is left.
std::vector<std::int64_t> equal_shares(std::int64_t rows, std::int64_t ranks);

/// Rows [begin, begin + count) of a step.
struct RowRange {
  std::int64_t begin = 0, count = 0;  ///< begin counts from the first row of the step
  bool operator==(const RowRange&) const = default;
};

/// The rows of `rank` in micro-batch `micro` of `micro_batches`: every rank's share is spread evenly over its
/// micro-batches, and the rows of a micro-batch go to the ranks in their order. With equal shares that are a multiple
/// of micro_batches: micro-batch a takes rows / micro_batches rows, of which rank r takes the r-th part.
RowRange rows_of_micro_batch(const std::vector<std::int64_t>& shares, std::int64_t micro_batches, std::int64_t micro,
                             std::int64_t rank);

}  // namespace tessera::layout
