#pragma once
/// \file
/// --balance_batches: how many rows of each step a rank takes, by what ranks have measured (layout/batch/balancer.h).
///
/// Every rank computes as many micro-batches as the others, of more or fewer rows, so that the collectives of every
/// strategy meet. What a rank was measured at travels with the sums that ranks exchange before each step anyway.

#include <tessera/comm/world.h>
#include <tessera/layout/batch/balancer.h>
#include <tessera/train/core/run_plan.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::train {

class RowBalance {
 public:
  /// `seconds_per_row`: by rank, of a checkpoint; may be empty.
  RowBalance(const comm::World& world, std::vector<double> seconds_per_row)
      : rank_(world.rank()),
        local_ranks_(world.local_size()),
        measures_memory_(world.device().is_cpu()),
        balancer_(world.size(), std::move(seconds_per_row)) {}

  /// Before the rows of `step` are read: the shares that it will have.
  const std::vector<std::int64_t>& begin_step(const RunPlan& plan, std::int64_t step);
  /// This rank's numbers of the step before, for a sum over the ranks: two for each rank, zeros but for its own.
  std::vector<std::int64_t> own_numbers() const;
  /// That sum. Returns whether shares change from the step after the one that was begun.
  bool take_numbers(const std::int64_t* sums);
  /// The step that was begun has been computed in so many seconds, without waiting for others.
  void computed(double seconds);

  const std::vector<std::int64_t>& shares() const { return shares_; }
  const layout::BatchBalancer& balancer() const { return balancer_; }

 private:
  std::int64_t rows_that_fit() const;

  int rank_, local_ranks_;
  bool measures_memory_;
  layout::BatchBalancer balancer_;
  std::vector<std::int64_t> shares_;
  std::int64_t micro_batches_ = 1;
  bool balanced_ = true;  ///< the step that was begun, which is measured then
  /// What the last step that was computed was measured at.
  struct Last {
    std::vector<std::int64_t> shares;
    std::int64_t micro_batches = 1, nanoseconds = 0, most = 0;
  };
  std::optional<Last> last_;
  std::int64_t first_bytes_ = 0;  ///< resident before the first step
  std::int64_t largest_ = 0;      ///< rows of a micro-batch so far
};

}  // namespace tessera::train
