#include <tessera/config/rules/named_parameters.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/overrides.h>
#include <tessera/config/sections/optimization_config.h>

#include <algorithm>
#include <map>
#include <set>

namespace tessera::config {
namespace {

using Names = std::vector<std::string>;

const Names& names_of(OptimizerKind kind) {
  using K = OptimizerKind;
  static const Names adam = {"beta1", "beta2", "epsilon", "eps", "bias_correction"}, lion = {"beta1", "beta2"};
  static const std::map<K, Names> all = {
      {K::adamw, adam},
      {K::adam, adam},
      {K::adamw_8bit, adam},
      {K::lion, lion},
      {K::lion_8bit, lion},
      {K::sgd, {"momentum", "nesterov"}},
      {K::adagrad, {"lr_decay", "initial_accumulator_value", "eps"}},
      {K::rmsprop, {"alpha", "eps", "momentum", "centered"}},
      {K::adafactor,
       {"eps1", "eps2", "clip_threshold", "decay_rate", "beta1", "scale_parameter", "relative_step", "warmup_init"}},
      {K::lamb, {"beta1", "beta2", "eps", "bias_correction", "min_trust_ratio", "max_trust_ratio", "adapt_undecayed"}},
      {K::lars, {"momentum", "nesterov", "trust_coefficient", "eps", "adapt_undecayed"}},
      {K::muon, {"momentum", "nesterov", "ns_steps", "ns_coefficients", "scale_mode", "extra_scale_factor", "ns_eps"}}};
  return all.at(kind);
}

const Names& names_of(ScheduleType type) {
  using T = ScheduleType;
  static const std::map<T, Names> all = {
      {T::linear, {"num_training_steps", "warmup_init_lr"}},
      {T::cosine, {"num_cycles", "num_training_steps", "warmup_init_lr"}},
      {T::constant, {}},
      {T::constant_with_warmup, {"warmup_init_lr"}},
      {T::polynomial, {"lr_end", "power", "num_training_steps", "warmup_init_lr"}},
      {T::inverse_sqrt, {"timescale", "warmup_init_lr"}},
      {T::cosine_with_restarts, {"num_cycles"}},
      {T::cosine_with_min_lr, {"min_lr", "min_lr_rate", "num_cycles", "num_training_steps", "warmup_init_lr"}},
      {T::warmup_stable_decay,
       {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles",
        "num_training_steps", "warmup_init_lr"}},
      {T::cosine_warmup_with_min_lr, {"min_lr", "min_lr_rate", "num_cycles", "warmup_lr_rate"}},
      {T::reduce_lr_on_plateau,
       {"mode", "factor", "patience", "threshold", "threshold_mode", "cooldown", "min_lr", "eps"}},
      {T::warmup_lr, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type"}},
      {T::warmup_decay_lr, {"warmup_min_lr", "warmup_max_lr", "warmup_num_steps", "warmup_type", "total_num_steps"}},
      {T::warmup_cosine_lr,
       {"warmup_min_ratio", "warmup_num_steps", "warmup_type", "total_num_steps", "cos_min_ratio"}},
      {T::one_cycle,
       {"cycle_min_lr", "cycle_max_lr", "cycle_first_step_size", "cycle_second_step_size", "cycle_first_stair_count",
        "cycle_second_stair_count", "decay_step_size", "decay_lr_rate", "cycle_momentum", "cycle_min_mom",
        "cycle_max_mom", "decay_mom_rate"}},
      {T::lr_range_test,
       {"lr_range_test_min_lr", "lr_range_test_step_size", "lr_range_test_step_rate", "lr_range_test_staircase",
        "lr_range_test_max_lr"}}};
  return all.at(type);
}

/// A name has the same type of value everywhere; DeepSpeed's "auto" may replace any number.
void check_kind(const std::string& name, const Value& value) {
  static const std::set<std::string> flags = {"bias_correction", "nesterov",       "centered",
                                              "scale_parameter", "relative_step",  "warmup_init",
                                              "adapt_undecayed", "cycle_momentum", "lr_range_test_staircase"};
  static const std::set<std::string> words = {"warmup_type",    "decay_type",      "mode",
                                              "threshold_mode", "ns_coefficients", "scale_mode"};
  if (value.is_null()) return;
  if (flags.contains(name))
    value.as_bool();
  else if (words.contains(name))
    value.as_string();
  else if (!value.is_string() || to_lower(value.as_string()) != "auto")
    value.as_real();
}

/// The allowed range of an optimizer's number.
struct Range {
  bool (*holds)(double x);
  const char* words;
};

Range range_of(OptimizerKind kind, const std::string& name) {
  static constexpr Range below_one = {[](double x) { return x >= 0 && x < 1; }, "at least 0 and below 1"},
                         not_negative = {[](double x) { return x >= 0; }, "0 or above"},
                         above_zero = {[](double x) { return x > 0; }, "above 0"},
                         below_zero = {[](double x) { return x < 0; }, "below 0"},
                         steps = {[](double x) { return x >= 1 && x <= 100; }, "from 1 to 100"};
  static const std::map<std::string, Range> all = {{"beta1", below_one},           {"beta2", below_one},
                                                   {"alpha", below_one},           {"eps1", above_zero},
                                                   {"clip_threshold", above_zero}, {"trust_coefficient", above_zero},
                                                   {"ns_eps", above_zero},         {"extra_scale_factor", above_zero},
                                                   {"decay_rate", below_zero},     {"ns_steps", steps}};
  if (kind == OptimizerKind::muon && name == "momentum") return below_one;
  const auto found = all.find(name);
  return found == all.end() ? not_negative : found->second;
}

void check(const std::string& what, const Names& known, const NamedParameters& given) {
  for (const auto& [name, value] : given) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      const auto near = nearest(name, known);
      throw InputError(concat(what, " '", name, "' is unknown", near ? concat("; did you mean '", *near, "'?") : "",
                              known.empty() ? " (it has none)" : concat(" (known: ", join(known), ")")));
    }
    check_kind(name, value);
  }
}

}  // namespace

void check_parameters(OptimizerKind kind, const NamedParameters& given) {
  check(concat("--optim_args: parameter of ", kind), names_of(kind), given);
  for (const auto& [name, value] : given) {
    const bool number = value.is_number();
    const Range range = range_of(kind, name);
    if (number && !range.holds(value.as_real()))
      throw InputError(concat("--optim_args: ", name, " of ", kind, " is ", format_real(value.as_real()),
                              "; it must be ", range.words));
  }
}

void check_parameters(ScheduleType type, const NamedParameters& given) {
  check(concat("--lr_scheduler_kwargs: parameter of ", type), names_of(type), given);
}

NamedParameters optimizer_parameters(const OptimizationConfig& config) {
  NamedParameters given = parse_overrides(config.optim_args, "--optim_args");
  check_parameters(config.optim, given);
  return given;
}

NamedParameters schedule_parameters(const OptimizationConfig& config) {
  NamedParameters given = parse_overrides(config.lr_scheduler_kwargs, "--lr_scheduler_kwargs");
  check_parameters(config.lr_scheduler_type, given);
  return given;
}

const Value* find_parameter(const NamedParameters& given, std::string_view name) {
  for (const auto& [key, value] : given)
    if (key == name && !value.is_null()) return &value;
  return nullptr;
}

}  // namespace tessera::config
