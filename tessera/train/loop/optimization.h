#pragma once
/// \file
/// From the settings to the choice of an optimizer, its schedule and its loss scale.

#include <tessera/config/core/run_config.h>
#include <tessera/optim/by_name.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/parallel/recompute/checkpoint_plan.h>
#include <tessera/train/loop/run_plan.h>

#include <optional>
#include <string>

namespace tessera::train {

/// --optim and its parameters. Throws InputError for --optim_args that are not pairs.
optim::OptimizerChoice optimizer_choice(const OptimizationConfig& config);

/// --gradient_checkpointing_kwargs: every, names, part, preserve_rng_state, early_stop, offload_inputs_to; Hugging
/// Face's use_reentrant is accepted (there is one implementation, which is not re-entrant). Throws InputError for
/// others, with the nearest.
parallel::CheckpointPlan checkpoint_plan(const OptimizationConfig& config);

/// Throws InputError for parameters (--lr_scheduler_kwargs) that the schedule does not have or that are out of range.
optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan);

/// What --fp16 scales its loss by; nullopt without it.
std::optional<optim::LossScale> make_loss_scale(const OptimizationConfig& config);

}  // namespace tessera::train
