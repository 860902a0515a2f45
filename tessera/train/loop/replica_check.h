#pragma once
/// \file
/// --check_replicas_steps: ranks that should have the same parameters compare them periodically. This catches flipped
/// bits and updates that differ between ranks before they become visible as a model that does not learn.

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
  /// All arguments outlive this object.
  ReplicaCheck(const Setup& setup, comm::World& world, ParallelModel& model, RunClock& clock);

  /// Call after `step` steps; compares when it is time. Collective. Throws Error if ranks differ.
  void after_step(std::int64_t step);
  /// Also compares before every save, so that a restart never resumes from damaged parameters; does nothing if they
  /// were already compared since the last step.
  void before_save(std::int64_t step);

 private:
  std::vector<parallel::NamedTensor> whole_on_tensor_ranks();

  const Setup& setup_;
  comm::World& world_;
  ParallelModel& model_;
  RunClock& clock_;
  std::int64_t every_;     // 0: never
  std::int64_t equal_at_;  // step of the last comparison, or when replicas were made equal
};

}  // namespace tessera::train
