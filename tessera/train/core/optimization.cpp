#include <tessera/train/core/optimization.h>

#include <cmath>
#include <utility>
#include <vector>

#include <tessera/config/core/overrides.h>

namespace tessera::train {

optim::OptimizerChoice optimizer_choice(const OptimizationConfig& config) {
  return {.kind = config.optim,
          .beta1 = config.adam_beta1,
          .beta2 = config.adam_beta2,
          .epsilon = config.adam_epsilon,
          .momentum = config.momentum,
          .nesterov = config.nesterov,
          .parameters = config::parse_overrides(config.optim_args, "--optim_args")};
}

optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan) {
  optim::Schedule schedule{config.lr_scheduler_type, plan.warmup_steps, plan.total_steps, config.learning_rate,
                           config::parse_overrides(config.lr_scheduler_kwargs, "--lr_scheduler_kwargs")};
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
  // the one counts good steps as DeepSpeed does who asks for what only DeepSpeed has
  options.first_good_step_counts = config.hysteresis == 1 && !config.consecutive_hysteresis;
  return optim::LossScale(options);
}

}  // namespace tessera::train
