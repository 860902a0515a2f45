#pragma once
/// \file
/// Adapts shares to measured speeds: decides when they change, and by how much.
///
/// A rank's time per row is its compute time in a step, without waiting for others, divided by its rows; the median of
/// the last few steps is used because other load on a machine causes outliers. New shares are adopted if, twice in a
/// row, they promise to shorten a step by more than 3 %, and only after a window of steps has been measured with the
/// current shares. The measurement then includes the effect of the current shares, so shares converge to the point
/// where all ranks finish together, even if time is not proportional to rows.

#include <tessera/layout/batch/shares.h>

#include <cstdint>
#include <vector>

namespace tessera::layout {

struct BalanceRules {
  double least_gain = 0.03;  ///< fraction of the slowest rank's time
  int window = 4;            ///< number of steps for the median
  int settled = 2;           ///< consecutive promises required
  /// steps skipped at the start and after a change: memory is being allocated, caches are cold
  int ignored = 1;
};

class BatchBalancer {
 public:
  /// Starts with equal speeds, or, on a resume, with known ones (seconds per row; equal if the number of ranks has
  /// changed).
  explicit BatchBalancer(std::int64_t ranks, std::vector<double> seconds_per_row = {}, BalanceRules rules = {});

  /// Returns the shares of a step of `rows` rows, at least `least` each, from the adopted speeds. If memory does not
  /// allow these shares, they are as equal as memory allows, or else equal.
  std::vector<std::int64_t> shares(std::int64_t rows, std::int64_t least) const;
  /// Records a step in which rank r took shares[r] rows and computed for seconds[r]; `most[r]`: rows that fit into its
  /// memory in later steps. Returns whether new speeds were adopted, in which case the next shares may differ. Must be
  /// called with the same numbers on every rank.
  bool measured(const std::vector<std::int64_t>& shares, const std::vector<double>& seconds,
                const std::vector<std::int64_t>& most, std::int64_t least);

  /// The adopted speeds; for a checkpoint.
  const std::vector<double>& seconds_per_row() const { return adopted_; }
  std::int64_t changes() const { return changes_; }

 private:
  std::vector<RankSpeed> speeds_of(const std::vector<double>& seconds_per_row, std::int64_t rows) const;

  BalanceRules rules_;
  std::vector<double> adopted_;
  std::vector<std::int64_t> most_;            ///< empty: unknown
  std::vector<std::vector<double>> history_;  ///< per rank: seconds per row of the last steps
  int steps_ = 0, promises_ = 0;
  std::int64_t changes_ = 0;
};

}  // namespace tessera::layout
