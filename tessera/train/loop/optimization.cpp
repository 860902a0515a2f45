#include <tessera/train/loop/optimization.h>

#include <cmath>
#include <utility>
#include <vector>

#include <tessera/base/error.h>
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

parallel::CheckpointPlan checkpoint_plan(const OptimizationConfig& config) {
  parallel::CheckpointPlan plan;
  const std::string flag = "--gradient_checkpointing_kwargs";
  for (const auto& [key, value] : config::parse_overrides(config.gradient_checkpointing_kwargs, flag)) {
    if (key == "every") {
      plan.every = value.as_int();
    } else if (key == "names") {
      plan.names = value.as_string();
    } else if (key == "part") {
      plan.part = parallel::parse_checkpoint_part(value.as_string());
    } else if (key == "preserve_rng_state") {
      plan.preserve_random = value.as_bool();
    } else if (key == "early_stop") {
      plan.early_stop = value.as_bool();
    } else if (key == "offload_inputs_to") {
      plan.offload_inputs_to = value.as_string();
    } else if (key == "use_reentrant") {
      value.as_bool();
    } else {
      const std::vector<std::string> known = {
          "every", "names", "part", "preserve_rng_state", "early_stop", "offload_inputs_to", "use_reentrant"};
      const auto near = nearest(key, known);
      throw InputError(concat(flag, ": unknown key ", key,
                              near ? concat("; did you mean ", *near, "?") : concat("; the keys are ", join(known))));
    }
  }
  return plan;
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
