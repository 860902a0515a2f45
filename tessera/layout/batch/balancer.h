#pragma once
/// \file
/// Shares that follow measured speeds: when they move, and how far.
///
/// A step's time that a rank has computed, without its waiting for others, by the rows that it had, is its time per
/// row. The median of the last few steps counts, since a machine that does other things, too, gives outliers. New
/// shares are taken when they promise a step that is more than 3 % shorter, twice in a row, and not before a window
/// of steps has been measured with the present ones: what is measured then tells what they are worth, so shares
/// settle where all ranks end together, even where time is not proportional to rows.

#include <tessera/layout/batch/shares.h>

#include <cstdint>
#include <vector>

namespace tessera::layout {

struct BalanceRules {
  double least_gain = 0.03;  ///< a share of the slowest rank's time
  int window = 4;            ///< steps whose median counts
  int settled = 2;           ///< promises in a row
  int ignored = 1;           ///< steps after the beginning, and after a change: memory is taken, caches are cold
};

class BatchBalancer {
 public:
  /// All ranks alike, or, on a resume, of known speeds (seconds per row; another number of ranks: all alike again).
  explicit BatchBalancer(std::int64_t ranks, std::vector<double> seconds_per_row = {}, BalanceRules rules = {});

  /// The shares of a step of so many rows, at least `least` each: a function of the speeds adopted so far. Where memory
  /// does not suffice for unequal ones: as equal as it allows, then equal.
  std::vector<std::int64_t> shares(std::int64_t rows, std::int64_t least) const;
  /// A step is done in which rank r took shares[r] rows and computed seconds[r]; `most[r]`: the rows that it has memory
  /// for, from now on. Returns whether speeds were adopted, so that the next shares may be others. The same numbers
  /// must be given on every rank.
  bool measured(const std::vector<std::int64_t>& shares, const std::vector<double>& seconds,
                const std::vector<std::int64_t>& most, std::int64_t least);

  /// The adopted ones; for a checkpoint.
  const std::vector<double>& seconds_per_row() const { return adopted_; }
  std::int64_t changes() const { return changes_; }

 private:
  std::vector<RankSpeed> speeds_of(const std::vector<double>& seconds_per_row, std::int64_t rows) const;

  BalanceRules rules_;
  std::vector<double> adopted_;
  std::vector<std::int64_t> most_;            ///< empty: not known
  std::vector<std::vector<double>> history_;  ///< by rank: seconds per row of the last steps
  int steps_ = 0, promises_ = 0;
  std::int64_t changes_ = 0;
};

}  // namespace tessera::layout
