#pragma once
/// \file
/// From the settings to the choice of an optimizer, its schedule and its loss scale.

#include <tessera/config/core/run_config.h>
#include <tessera/optim/by_name.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/train/core/run_plan.h>

#include <optional>
#include <string>

namespace tessera::train {

/// --optim and its parameters. Throws InputError for --optim_args that are not pairs.
optim::OptimizerChoice optimizer_choice(const OptimizationConfig& config);

/// Throws InputError for parameters (--lr_scheduler_kwargs) that the schedule does not have or that are out of range.
optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan);

/// What --fp16 scales its loss by; nullopt without it.
std::optional<optim::LossScale> make_loss_scale(const OptimizationConfig& config);

}  // namespace tessera::train
