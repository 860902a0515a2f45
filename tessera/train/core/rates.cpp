#include <tessera/train/core/rates.h>

namespace tessera::train {

RateSchedule rate_schedule(optim::Schedule schedule, const std::vector<double>& bases) {
  if (schedule.type == ScheduleType::reduce_lr_on_plateau && !bases.empty()) {
    const auto plateau = std::make_shared<optim::Plateau>(schedule, bases);
    return {[plateau](std::int64_t, double base) { return plateau->rate(base); }, {}, plateau};
  }
  optim::check_schedule(schedule);
  const auto rate = [schedule](std::int64_t steps, double base) {
    optim::Schedule own = schedule;
    own.learning_rate = base;
    return optim::schedule_rate(own, steps);
  };
  return {rate, [schedule](std::int64_t steps) { return optim::schedule_betas(schedule, steps); }};
}

}  // namespace tessera::train
