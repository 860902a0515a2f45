#include <tessera/train/core/optimization.h>

#include <cmath>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/resolve/validate_training.h>
#include <tessera/config/rules/named_parameters.h>
#include <tessera/config/sections/optimization_config.h>

namespace tessera::train {

optim::OptimizerChoice optimizer_choice(const OptimizationConfig& config) {
  return {.kind = config.optim,
          .beta1 = config.adam_beta1,
          .beta2 = config.adam_beta2,
          .epsilon = config.adam_epsilon,
          .momentum = config.momentum,
          .nesterov = config.nesterov,
          .parameters = config::optimizer_parameters(config)};
}

double batch_factor(BatchRule rule, std::int64_t rows, std::int64_t from) {
  const double quotient = static_cast<double>(rows) / static_cast<double>(from);
  if (rule == BatchRule::none) return 1;
  return rule == BatchRule::linear ? quotient : std::sqrt(quotient);
}

OptimizationConfig with_learning_rate_rule(OptimizationConfig config, std::int64_t rows) {
  if (config.learning_rate_rule != BatchRule::none)
    for (double* rate : {&config.learning_rate, &config.decoupled_lr, &config.mm_projector_lr})
      if (*rate >= 0) *rate *= batch_factor(config.learning_rate_rule, rows, config.learning_rate_batch_size);
  return config;
}

std::string describe_learning_rate(const OptimizationConfig& config, std::int64_t rows) {
  if (config.learning_rate_rule == BatchRule::none) return "";
  const std::string quotient = concat(rows, " / ", config.learning_rate_batch_size);
  return concat(
      "learning rate ", format_real(with_learning_rate_rule(config, rows).learning_rate, 6), " = ",
      format_real(config.learning_rate, 6), " x ",
      config.learning_rate_rule == BatchRule::linear ? concat("(", quotient, ")") : concat("sqrt(", quotient, ")"),
      ": rows per step by --learning_rate_batch_size (--learning_rate_rule ", config.learning_rate_rule, ")",
      config.batch_size_schedule.empty() ? "" : "; while the batch grows, each step's rate follows the same rule");
}

optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan) {
  optim::Schedule schedule{config.lr_scheduler_type, plan.warmup_steps, plan.total_steps, config.learning_rate,
                           config::schedule_parameters(config)};
  optim::check_schedule(schedule);
  return schedule;
}

std::optional<optim::Schedule> make_schedule_of_embeddings(const OptimizationConfig& config, const RunPlan& plan) {
  if (config.decoupled_lr <= 0 || config.decoupled_min_lr < 0) return std::nullopt;
  optim::Schedule schedule = make_schedule(config, plan);
  schedule.learning_rate = config.decoupled_lr;
  const std::string least = config::least_rate_parameter(config.lr_scheduler_type);
  TESSERA_CHECK(!least.empty(), "--decoupled_min_lr with the schedule ", config.lr_scheduler_type);
  std::erase_if(schedule.parameters,
                [&](const auto& given) { return given.first == least || given.first == "min_lr_rate"; });
  schedule.parameters.emplace_back(least, Value::of(config.decoupled_min_lr));
  optim::check_schedule(schedule);
  return schedule;
}

std::optional<optim::LossScale> make_loss_scale(const OptimizationConfig& config) {
  if (!config.fp16) return std::nullopt;
  optim::LossScaleOptions options;
  options.dynamic = config.loss_scale == 0;
  options.initial = options.dynamic ? std::ldexp(1.0, static_cast<int>(config.initial_scale_power)) : config.loss_scale;
  options.growth_interval = config.loss_scale_window;
  options.minimum = config.min_loss_scale;
  options.hysteresis = config.hysteresis;
  options.consecutive_hysteresis = config.consecutive_hysteresis;
  // settings that exist only in DeepSpeed select DeepSpeed's way of counting good steps
  options.first_good_step_counts = config.hysteresis == 1 && !config.consecutive_hysteresis;
  return optim::LossScale(options);
}

}  // namespace tessera::train
