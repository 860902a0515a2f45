#pragma once
/// \file
/// Distributes a run's model over its ranks: which transformations are applied, and in which order.

#include <tessera/parallel/recompute/checkpoint_plan.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/train/core/step.h>
#include <tessera/train/loop/setup.h>

#include <memory>
#include <optional>

namespace tessera::train {

struct ParallelModel {
  StepCore core;                                                           ///< owns the sharding engine
  std::optional<TensorParallel> tensor;                                    ///< --tp_size
  std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing;  ///< --gradient_checkpointing

  Sharded& sharded() { return core.sharded(); }
};

/// Call before weights are read: a pipeline rank keeps its stages, and a rank of expert parallelism its experts. Throws
/// InputError.
void keep_own_parts(Setup& setup);

/// Performs the remaining steps, including loading weights: afterwards each rank has its parts of all parameters.
/// Collective; errors such as wrong class names are thrown on every rank.
void parallelize(Setup& setup, ParallelModel& model);

}  // namespace tessera::train
