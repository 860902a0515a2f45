#pragma once
/// \file
/// Creates the optimizer, its schedule and its loss scale from the settings.

#include <tessera/optim/by_name.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/train/core/run_plan.h>

#include <optional>
#include <string>

namespace tessera {
struct OptimizationConfig;
}

namespace tessera::train {

/// Returns the optimizer named by --optim, with its parameters. Throws InputError for --optim_args that are not pairs.
optim::OptimizerChoice optimizer_choice(const OptimizationConfig& config);

/// Factor for the learning rate when a step has `rows` rows instead of `from`: 1, their quotient (linear: SGD, Goyal et
/// al. 2017), or its square root (square_root: Adam and its variants, Malladi et al. 2022).
double batch_factor(BatchRule rule, std::int64_t rows, std::int64_t from);
/// Returns the settings with the learning rate scaled by --learning_rate_rule from learning_rate_batch_size rows per
/// step to `rows`.
OptimizationConfig with_learning_rate_rule(OptimizationConfig config, std::int64_t rows);
/// "learning rate 0.0004 = 0.0001 x sqrt(256 / 16), the rows of a step by --learning_rate_batch_size"; empty without a
/// rule.
std::string describe_learning_rate(const OptimizationConfig& config, std::int64_t rows);

/// Throws InputError for parameters (--lr_scheduler_kwargs) that the schedule does not have or that are out of range.
optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan);
/// Schedule of embeddings if --decoupled_min_lr gives them a different minimum rate; nullopt: the same schedule with
/// their own peak.
std::optional<optim::Schedule> make_schedule_of_embeddings(const OptimizationConfig& config, const RunPlan& plan);

/// Loss scale of --fp16; nullopt without it.
std::optional<optim::LossScale> make_loss_scale(const OptimizationConfig& config);

}  // namespace tessera::train
