#pragma once
/// \file
/// --balance_batches: determines from measured speeds how many rows of each step a rank takes
/// (layout/batch/balancer.h).
///
/// Every rank computes the same number of micro-batches, which differ only in their numbers of rows, so that the
/// collectives of every strategy match. Measurements travel with the sums that ranks exchange before each step anyway.

#include <tessera/comm/world.h>
#include <tessera/layout/batch/balancer.h>
#include <tessera/train/core/run_plan.h>
#include <tessera/train/features/row_shares.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

class RunFeature;

class RowBalance : public RowShares {
 public:
  /// `seconds_per_row`: by rank, from a checkpoint; may be empty.
  RowBalance(const comm::World& world, std::vector<double> seconds_per_row)
      : rank_(world.rank()),
        local_ranks_(world.local_size()),
        measures_memory_(world.device().is_cpu()),
        balancer_(world.size(), std::move(seconds_per_row)) {}

  const std::vector<std::int64_t>& begin_step(const RunPlan& plan, std::int64_t step) override;
  /// Two numbers per rank; only this rank's are nonzero.
  std::vector<std::int64_t> own_numbers() const override;
  void take_numbers(const std::int64_t* sums) override;
  void computed(double seconds) override;

  const std::vector<std::int64_t>& shares() const { return shares_; }
  const layout::BatchBalancer& balancer() const { return balancer_; }

 private:
  std::int64_t rows_that_fit() const;

  int rank_, local_ranks_;
  bool measures_memory_;
  layout::BatchBalancer balancer_;
  std::vector<std::int64_t> shares_;
  std::int64_t micro_batches_ = 1;
  bool balanced_ = true;  ///< whether the current step is balanced and will be measured
  /// Measurements of the last computed step.
  struct Last {
    std::vector<std::int64_t> shares;
    std::int64_t micro_batches = 1, nanoseconds = 0, most = 0;
  };
  std::optional<Last> last_;
  std::int64_t first_bytes_ = 0;  ///< resident bytes before the first step
  std::int64_t largest_ = 0;      ///< largest number of rows in a micro-batch so far
};

/// Feature for --balance_batches; null: it is off.
std::unique_ptr<RunFeature> make_row_balance(const RunConfig& config);

}  // namespace tessera::train
