#include <tessera/optim/plateau.h>

#include <tessera/optim/schedule_parameters.h>

#include <limits>

namespace tessera::optim {

Plateau::Plateau(const Schedule& schedule) {
  check_schedule(schedule);  // names of the parameters
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
  state_ = {schedule.learning_rate, smaller_is_better_ ? infinity : -infinity, 0, 0};
}

bool Plateau::improves(double metric) const {
  if (smaller_is_better_) return metric < (relative_ ? state_.best * (1 - threshold_) : state_.best - threshold_);
  return metric > (relative_ ? state_.best * (1 + threshold_) : state_.best + threshold_);
}

void Plateau::update(double metric) {
  if (improves(metric)) {
    state_.best = metric;
    state_.bad = 0;
  } else {
    ++state_.bad;
  }
  if (state_.cooldown > 0) {
    --state_.cooldown;
    state_.bad = 0;
  }
  if (state_.bad <= patience_) return;
  const double lower = std::max(state_.learning_rate * factor_, least_);
  if (state_.learning_rate - lower > smallest_change_) state_.learning_rate = lower;
  state_.cooldown = cooldown_;
  state_.bad = 0;
}

std::optional<Plateau> make_plateau(const Schedule& schedule) {
  if (schedule.type != "reduce_lr_on_plateau") return std::nullopt;
  return Plateau(schedule);
}

}  // namespace tessera::optim
