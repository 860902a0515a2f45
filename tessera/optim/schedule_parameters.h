#pragma once
/// \file
/// Common code of the formulas of learning-rate schedules: their parameters, read with range checks, and the evaluated
/// step.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/rules/named_parameters.h>
#include <tessera/optim/schedule.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

namespace tessera::optim {

/// The parameters of a schedule. Values out of range throw InputError with the parameter, its schedule and the rule.
class ScheduleParameters {
 public:
  explicit ScheduleParameters(const Schedule& schedule) : schedule_(schedule) {}

  /// nullptr: not set, or null.
  const Value* given(const std::string& name) const { return config::find_parameter(schedule_.parameters, name); }
  /// Whether it is DeepSpeed's "auto": the value comes from the other settings of the run.
  bool is_auto(const std::string& name) const {
    const Value* value = given(name);
    return value != nullptr && value->is_string() && to_lower(value->as_string()) == "auto";
  }
  /// Throws below `least`.
  double real(const std::string& name, double otherwise, double least) const {
    const Value* value = given(name);
    if (!value) return otherwise;
    const double x = value->as_real();
    if (!(x >= least) || !std::isfinite(x)) throw bad(name, concat(format_real(x), " must be at least ", least));
    return x;
  }
  /// Reads a whole number; accepts 1e3.
  double whole(const std::string& name, double least) const {
    const Value& value = *given(name);
    if (value.is_number() && std::floor(value.as_real()) == value.as_real()) return real(name, 0, least);
    return real(name, static_cast<double>(value.as_int()), least);  // throws, because it is not a whole number
  }
  double whole(const std::string& name, double otherwise, double least) const {
    return given(name) ? whole(name, least) : otherwise;
  }
  bool flag(const std::string& name, bool otherwise) const {
    const Value* value = given(name);
    return value ? value->as_bool() : otherwise;
  }
  std::string word(const std::string& name, const std::string& otherwise, const std::vector<std::string>& words) const {
    const Value* value = given(name);
    const std::string text = value ? value->as_string() : otherwise;
    if (std::find(words.begin(), words.end(), text) == words.end())
      throw bad(name, concat("'", text, "' is unknown (known: ", join(words), ")"));
    return text;
  }
  InputError bad(const std::string& name, const std::string& what) const {
    return InputError(concat("--lr_scheduler_kwargs: ", name, " of ", schedule_.type, ": ", what));
  }

 private:
  const Schedule& schedule_;
};

/// The inputs of every formula.
struct ScheduleMoment {
  const Schedule& schedule;
  ScheduleParameters parameters;
  double step, warmup, total;

  ScheduleMoment(const Schedule& s, std::int64_t at_step)
      : schedule(s),
        parameters(s),
        step(static_cast<double>(at_step)),
        warmup(static_cast<double>(s.warmup_steps)),
        total(parameters.whole("num_training_steps", static_cast<double>(s.total_steps), 1)) {
    if (parameters.given("num_training_steps")) step = std::min(step, total);
  }

  /// Share of the steps after the warm-up that are completed.
  double progress() const { return (step - warmup) / std::max(1.0, total - warmup); }
};

}  // namespace tessera::optim
