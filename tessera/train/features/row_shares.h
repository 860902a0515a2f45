#pragma once
/// \file
/// How many rows of a step each rank takes.

#include <tessera/train/core/run_plan.h>

#include <cstdint>
#include <vector>

namespace tessera::train {

class RowShares {
 public:
  virtual ~RowShares() = default;
  /// Call before the rows of `step` are read: returns the shares of each rank.
  virtual const std::vector<std::int64_t>& begin_step(const RunPlan& plan, std::int64_t step) = 0;
  /// own_numbers(): this rank's numbers of the previous step, to be summed over the ranks; the same count on each.
  /// take_numbers(): receives the sums.
  virtual std::vector<std::int64_t> own_numbers() const { return {}; }
  virtual void take_numbers(const std::int64_t* sums) { (void)sums; }
  /// Reports that the current step was computed in this many seconds, excluding waits for other ranks.
  virtual void computed(double seconds) { (void)seconds; }
};

/// Gives all ranks the same number of rows.
class EqualShares : public RowShares {
 public:
  const std::vector<std::int64_t>& begin_step(const RunPlan& plan, std::int64_t step) override {
    return shares_ = plan.equal_shares(step);
  }

 private:
  std::vector<std::int64_t> shares_;
};

}  // namespace tessera::train
