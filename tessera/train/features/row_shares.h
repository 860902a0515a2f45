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
  /// Before the rows of `step` are read: the shares that it will have, by rank.
  virtual const std::vector<std::int64_t>& begin_step(const RunPlan& plan, std::int64_t step) = 0;
  /// This rank's numbers of the step before, for a sum over the ranks, as many on each; and that sum.
  virtual std::vector<std::int64_t> own_numbers() const { return {}; }
  virtual void take_numbers(const std::int64_t* sums) { (void)sums; }
  /// The step that was begun has been computed in this many seconds, without waiting for others.
  virtual void computed(double seconds) { (void)seconds; }
};

/// All take as many.
class EqualShares : public RowShares {
 public:
  const std::vector<std::int64_t>& begin_step(const RunPlan& plan, std::int64_t step) override {
    return shares_ = plan.equal_shares(step);
  }

 private:
  std::vector<std::int64_t> shares_;
};

}  // namespace tessera::train
