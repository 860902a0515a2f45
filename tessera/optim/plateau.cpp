#include <tessera/optim/plateau.h>

#include <tessera/optim/schedule_parameters.h>

#include <tessera/base/error.h>

#include <cmath>
#include <limits>

namespace tessera::optim {

Plateau::Plateau(const Schedule& schedule, const std::vector<double>& bases) {
  check_schedule(schedule);  // checks the names of the parameters
  const ScheduleParameters p(schedule);
  smaller_is_better_ = p.word("mode", "min", {"min", "max"}) == "min";
  relative_ = p.word("threshold_mode", "rel", {"rel", "abs"}) == "rel";
  factor_ = p.real("factor", 0.1, 0);
  if (!(factor_ < 1)) throw p.bad("factor", concat(format_real(factor_), " must be below 1"));
  threshold_ = p.real("threshold", 1e-4, 0);
  least_ = p.real("min_lr", 0, 0);
  smallest_change_ = p.real("eps", 1e-8, 0);
  patience_ = static_cast<std::int64_t>(p.whole("patience", 10, 0));
  cooldown_ = static_cast<std::int64_t>(p.whole("cooldown", 0, 0));
  const double infinity = std::numeric_limits<double>::infinity();
  best_ = smaller_is_better_ ? infinity : -infinity;
  for (const double base : bases) rates_.emplace(base, base);
}

bool Plateau::improves(double metric) const {
  if (smaller_is_better_) return metric < (relative_ ? best_ * (1 - threshold_) : best_ - threshold_);
  return metric > (relative_ ? best_ * (1 + threshold_) : best_ + threshold_);
}

void Plateau::update(double metric) {
  if (improves(metric)) {
    best_ = metric;
    bad_ = 0;
  } else {
    ++bad_;
  }
  if (cooling_ > 0) {
    --cooling_;
    bad_ = 0;
  }
  if (bad_ <= patience_) return;
  for (auto& [base, rate] : rates_) {
    const double lower = std::max(rate * factor_, least_);
    if (rate - lower > smallest_change_) rate = lower;
  }
  cooling_ = cooldown_;
  bad_ = 0;
}

Value Plateau::state() const {
  Value groups = Value::make_array();
  for (const auto& [base, rate] : rates_) {
    Value group = Value::make_object(
        {{"learning_rate", Value::of(rate)}, {"bad", Value::of(bad_)}, {"cooldown", Value::of(cooling_)}});
    if (std::isfinite(best_)) group.set("best", Value::of(best_));
    groups.push_back(std::move(group));
  }
  return rates_.size() == 1 ? groups.items().front() : groups;
}

void Plateau::set_state(const Value& state) {
  const std::vector<Value> groups = state.is_array() ? state.items() : std::vector<Value>{state};
  if (groups.size() != rates_.size())
    throw InputError(concat("the checkpoint's reduce_lr_on_plateau has ", groups.size(),
                            " different learning rates, but this optimizer's groups have ", rates_.size(),
                            ": resume with the same optimizer"));
  auto group = groups.begin();
  for (auto& [base, rate] : rates_) rate = (group++)->at("learning_rate").as_real();
  const Value& common = groups.front();
  if (const Value* best = common.find("best")) best_ = best->as_real();
  bad_ = common.at("bad").as_int();
  cooling_ = common.at("cooldown").as_int();
}

std::optional<Plateau> make_plateau(const Schedule& schedule) {
  if (schedule.type != ScheduleType::reduce_lr_on_plateau) return std::nullopt;
  return Plateau(schedule);
}

}  // namespace tessera::optim
