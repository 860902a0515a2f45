#include <tessera/train/optimization.h>

#include <ATen/ATen.h>

#include <utility>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/config/overrides.h>

namespace tessera::train {

std::unique_ptr<optim::Optimizer> make_optimizer(const OptimizationConfig& config, const models::CausalLm& model,
                                                 const Ddp& ddp) {
  std::vector<optim::Slot> slots;
  for (const auto& [name, parameter] : ddp.parameters())
    slots.push_back({name, parameter, model.is_norm_or_bias(name) ? 0.0 : config.weight_decay, 1.0});
  if (config.optim == "sgd") return optim::make_sgd(std::move(slots), {config.momentum, config.nesterov});
  return optim::make_adamw(std::move(slots), {config.adam_beta1, config.adam_beta2, config.adam_epsilon});
}

optim::Schedule make_schedule(const OptimizationConfig& config, const RunPlan& plan) {
  optim::Schedule schedule{config.lr_scheduler_type, plan.warmup_steps, plan.total_steps, config.learning_rate,
                           config::parse_overrides(config.lr_scheduler_kwargs, "--lr_scheduler_kwargs")};
  optim::check_schedule(schedule);
  return schedule;
}

void restore_optimizer(optim::Optimizer& optimizer, const checkpoint::RunState& saved, const std::string& folder) {
  auto state = optimizer.state();
  std::size_t restored = 0;
  for (const auto& [name, tensor] : saved.optimizer) {
    for (auto& [own_name, own] : state) {
      if (own_name != name) continue;
      if (own.sizes() != tensor.sizes())
        throw InputError(concat(folder, ": optimizer state ", name, " has another shape than this model's"));
      own.copy_(tensor);
      ++restored;
    }
  }
  if (restored != state.size() || restored != saved.optimizer.size())
    throw InputError(concat(folder, ": the checkpoint holds ", saved.optimizer.size(), " optimizer tensors, of which ",
                            restored, " are among the ", state.size(),
                            " of this run: resume with the same --optim and model"));
  optimizer.set_steps(saved.optimizer_steps);
}

}  // namespace tessera::train
