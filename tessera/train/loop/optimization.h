#pragma once
/// \file
/// From the settings to an optimizer, its schedule and its loss scale.

#include <tessera/checkpoint/file_reader.h>
#include <tessera/config/core/run_config.h>
#include <tessera/models/causal_lm.h>
#include <tessera/optim/by_name.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/recompute/checkpoint_plan.h>
#include <tessera/train/loop/run_plan.h>

#include <memory>
#include <optional>
#include <string>

namespace tessera::train {

/// --optim and its parameters. Throws InputError for --optim_args that are not pairs.
optim::OptimizerChoice optimizer_choice(const OptimizationConfig& config);

/// --gradient_checkpointing_kwargs: every, names, part, preserve_rng_state, early_stop, offload_inputs_to; Hugging
/// Face's use_reentrant is accepted (there is one implementation, which is not re-entrant). Throws InputError for
/// others, with the nearest.
parallel::CheckpointPlan checkpoint_plan(const OptimizationConfig& config);

/// Over this rank's parts of the parameters that are trained; weight decay skips biases and norms.
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationConfig& config, const models::LanguageModel& model,
                                                 const Sharded& sharded);

/// Throws InputError for parameters (--lr_scheduler_kwargs) that the schedule does not have or that are out of range.
optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan);

/// What --fp16 scales its loss by; nullopt without it.
std::optional<optim::LossScale> make_loss_scale(const OptimizationConfig& config);

/// Puts back what a checkpoint in `folder` saved: of each tensor the part that this rank holds, whatever ranks and
/// strategy it was saved from. `steps`: those that the optimizer had taken. `stem`: how the names of the state's files
/// begin (format/manifest/state_folder.h). Throws InputError unless the checkpoint holds exactly the optimizer's
/// tensors.
void restore_optimizer(optim::Optimizer& optimizer, const Sharded& sharded, std::int64_t steps,
                       const std::string& folder, const std::shared_ptr<format::ReadSums>& sums = {},
                       const std::string& stem = "optimizer");

}  // namespace tessera::train
