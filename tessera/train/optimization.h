#pragma once
/// \file
/// From the settings to an optimizer and its schedule.

#include <tessera/checkpoint/checkpoint.h>
#include <tessera/config/run_config.h>
#include <tessera/models/causal_lm.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/ddp.h>
#include <tessera/train/run_plan.h>

#include <memory>
#include <string>

namespace tessera::train {

/// Over the parameters that are trained; weight decay skips biases and norms.
std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationConfig& config, const models::CausalLm& model,
                                                 const Ddp& ddp);

/// Throws InputError for parameters (--lr_scheduler_kwargs) that the schedule does not have or that are out of range.
optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan);

/// Puts back what a checkpoint in `folder` saved. Throws InputError unless it holds exactly the optimizer's tensors.
void restore_optimizer(optim::Optimizer& optimizer, const checkpoint::RunState& saved, const std::string& folder);

}  // namespace tessera::train
