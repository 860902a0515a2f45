#pragma once
/// \file
/// --check_replicas_steps: ranks that should hold the same parameters compare them now and then. A flipped bit, or an
/// update that is not the same everywhere, is found here and not in a model that does not learn.

#include <tessera/comm/world.h>
#include <tessera/parallel/replicas.h>
#include <tessera/train/loop/parallelize.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/run_clock.h>

#include <cstdint>
#include <vector>

namespace tessera::train {

class ReplicaCheck {
 public:
  /// All of them outlive it.
  ReplicaCheck(const Setup& setup, comm::World& world, ParallelModel& model, RunClock& clock);

  /// `step` steps are done. Collective. Throws Error where ranks differ.
  void after_step(std::int64_t step);
  /// Before every save as well, so that a restart never goes on from what is wrong; nothing when it has been compared
  /// since the last step.
  void before_save(std::int64_t step);

 private:
  std::vector<parallel::NamedTensor> whole_on_tensor_ranks();

  const Setup& setup_;
  comm::World& world_;
  ParallelModel& model_;
  RunClock& clock_;
  std::int64_t every_;     // 0: never
  std::int64_t equal_at_;  // the step after which replicas were compared last, or made equal
};

}  // namespace tessera::train
