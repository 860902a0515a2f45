#pragma once
/// \file
/// The model of a run over its ranks: what is applied to it, and in which order.

#include <tessera/parallel/recompute/checkpoint_plan.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/train/core/step.h>
#include <tessera/train/loop/setup.h>

#include <memory>
#include <optional>

namespace tessera::train {

struct ParallelModel {
  StepCore core;                                                           ///< with the engine that shards the model
  std::optional<TensorParallel> tensor;                                    ///< --tp_size
  std::shared_ptr<const parallel::ActivationCheckpointing> checkpointing;  ///< --gradient_checkpointing

  Sharded& sharded() { return core.sharded(); }
};

/// Before weights are read: a rank of a pipeline keeps its stages, one of expert parallelism its experts. Throws
/// InputError.
void keep_own_parts(Setup& setup);

/// The rest, with the weights: afterwards each rank has its parts of all parameters. Collective; wrong class names and
/// the like throw the same on every rank.
void parallelize(Setup& setup, ParallelModel& model);

}  // namespace tessera::train
