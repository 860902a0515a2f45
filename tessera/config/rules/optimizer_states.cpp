#include <tessera/config/rules/optimizer_states.h>

#include <tessera/config/rules/named_parameters.h>
#include <tessera/config/sections/optimization_config.h>

namespace tessera::config {

int rmsprop_states(const OptimizationConfig& config) {
  int states = 1;
  const NamedParameters given = optimizer_parameters(config);
  if (const Value* centered = find_parameter(given, "centered"); centered && centered->as_bool()) ++states;
  if (const Value* momentum = find_parameter(given, "momentum"); momentum && momentum->as_real() > 0) ++states;
  return states;
}

bool has_eight_bit_states(OptimizerKind optim) {
  return optim == OptimizerKind::adamw_8bit || optim == OptimizerKind::lion_8bit;
}

double optimizer_state_bytes(const OptimizationConfig& config) {
  const double moment = has_eight_bit_states(config.optim) ? 1 + 4.0 / 64 : config.bf16_optimizer_states ? 2 : 4;
  switch (config.optim) {
    case OptimizerKind::sgd:
      return config.momentum > 0 ? moment : 0;
    case OptimizerKind::lars:
    case OptimizerKind::lion:
    case OptimizerKind::lion_8bit:
    case OptimizerKind::adagrad:
      return moment;
    case OptimizerKind::rmsprop:
      return moment * rmsprop_states(config);
    case OptimizerKind::adafactor:
      return 0;
    default:
      return 2 * moment;
  }
}

double wide_state_bytes(const OptimizationConfig& config) {
  if (!has_eight_bit_states(config.optim)) return optimizer_state_bytes(config);
  return config.optim == OptimizerKind::lion_8bit ? 4 : 8;
}

}  // namespace tessera::config
