#pragma once
/// \file
/// From the settings to the choice of an optimizer, its schedule and its loss scale.

#include <tessera/optim/by_name.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/train/core/run_plan.h>

#include <optional>
#include <string>

namespace tessera {
struct OptimizationConfig;
}

namespace tessera::train {

/// --optim and its parameters. Throws InputError for --optim_args that are not pairs.
optim::OptimizerChoice optimizer_choice(const OptimizationConfig& config);

/// What the learning rate of `from` rows per step is multiplied by for `rows` of them: 1, their quotient (linear: SGD,
/// Goyal et al. 2017), or its square root (square_root: Adam and its kin, Malladi et al. 2022).
double batch_factor(BatchRule rule, std::int64_t rows, std::int64_t from);
/// The settings with the learning rate for steps of `rows` rows that --learning_rate_rule makes of the one that was
/// found for learning_rate_batch_size.
OptimizationConfig with_learning_rate_rule(OptimizationConfig config, std::int64_t rows);
/// "learning rate 0.0004 = 0.0001 x sqrt(256 / 16), the rows of a step by --learning_rate_batch_size"; empty without a
/// rule.
std::string describe_learning_rate(const OptimizationConfig& config, std::int64_t rows);

/// Throws InputError for parameters (--lr_scheduler_kwargs) that the schedule does not have or that are out of range.
optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan);
/// That of embeddings where --decoupled_min_lr gives them another least rate; nullopt: the same one with their peak.
std::optional<optim::Schedule> make_schedule_of_embeddings(const OptimizationConfig& config, const RunPlan& plan);

/// What --fp16 scales its loss by; nullopt without it.
std::optional<optim::LossScale> make_loss_scale(const OptimizationConfig& config);

}  // namespace tessera::train
