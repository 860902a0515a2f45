#include <tessera/optim/deepspeed_schedules.h>

#include <numbers>

namespace tessera::optim {
namespace {

/// A rate for which "auto" means the run's own, as when transformers fills in DeepSpeed's file.
double rate(const ScheduleMoment& m, const std::string& name, double otherwise, double for_auto) {
  return m.parameters.is_auto(name) ? for_auto : m.parameters.real(name, otherwise, 0);
}

struct Warmup {
  double steps;
  bool logarithmic;

  /// Without warmup_num_steps the run's own warm-up is used, otherwise DeepSpeed's 1000 steps.
  explicit Warmup(const ScheduleMoment& m) {
    const double own = m.warmup > 0 ? m.warmup : 1000;
    steps = std::max(
        2.0, m.parameters.is_auto("warmup_num_steps") ? m.warmup : m.parameters.whole("warmup_num_steps", own, 0));
    logarithmic = m.parameters.word("warmup_type", "log", {"log", "linear"}) == "log";
  }
  bool lasts(double iteration) const { return iteration < steps; }
  double share(double iteration) const {
    return logarithmic ? 1.0 / std::log(steps) * std::log(iteration + 1) : iteration / steps;
  }
};

double total_steps(const ScheduleMoment& m) {
  return m.parameters.is_auto("total_num_steps") ? m.total : m.parameters.whole("total_num_steps", m.total, 1);
}

/// Rises from warmup_min_lr to warmup_max_lr; afterwards `after` maps the iteration to the rate.
template <class After>
double warmed_up(const ScheduleMoment& m, double default_peak, const After& after) {
  const double least = rate(m, "warmup_min_lr", 0, 0);
  const double peak = rate(m, "warmup_max_lr", default_peak, m.schedule.learning_rate);
  const Warmup warmup(m);
  if (m.step == 0) return least;
  const double iteration = m.step - 1;
  return least + (peak - least) * (warmup.lasts(iteration) ? warmup.share(iteration) : after(warmup.steps, iteration));
}

struct Cycle {
  double total, rising;  // steps of the cycle; share of them with rising rate
  double decay_step_size;

  explicit Cycle(const ScheduleMoment& m) {
    const ScheduleParameters& p = m.parameters;
    const double first = p.real("cycle_first_step_size", 2000, 1), second = p.real("cycle_second_step_size", first, 1);
    total = first + second;
    rising = first / total;
    decay_step_size = p.real("decay_step_size", 0, 0);
    for (const char* name : {"cycle_first_stair_count", "cycle_second_stair_count"})
      p.whole(name, 0, 0);  // DeepSpeed reads these settings but does not implement stairs
  }
  bool lasts(double step) const { return step - 1 < total; }
  /// 0 at the ends, 1 at the peak.
  double height(double step) const {
    const double x = 1 + step / total - std::floor(1 + step / total);
    return x <= rising ? x / rising : (x - 1) / (rising - 1);
  }
  /// Number of completed intervals of the decay; 0: no decay.
  double intervals(double step) const { return decay_step_size == 0 ? 0 : (step - total) / decay_step_size; }
};

}  // namespace

double deepspeed_warmup_lr(const ScheduleMoment& m) {
  return warmed_up(m, m.schedule.learning_rate, [](double, double) { return 1.0; });
}

double deepspeed_warmup_decay_lr(const ScheduleMoment& m) {
  const double total = total_steps(m);
  return warmed_up(m, 0.001, [&](double warmup, double iteration) {
    return std::max(0.0, (total - iteration) / std::max(1.0, total - warmup));
  });
}

double deepspeed_warmup_cosine_lr(const ScheduleMoment& m) {
  const ScheduleParameters& p = m.parameters;
  const double least = rate(m, "warmup_min_ratio", 0, 0);
  const double end = rate(m, "cos_min_ratio", 0.0001, 0.0001), total = total_steps(m);
  const Warmup warmup(m);
  if (total == warmup.steps)
    throw p.bad("total_num_steps",
                concat(total, " are all warm-up, so no steps are left for the cosine: lower warmup_num_steps"));
  if (m.step == 0) return 0;
  const double iteration = m.step - 1;
  const double ratio = warmup.lasts(iteration)
                           ? least + warmup.share(iteration) * (1 - least)
                           : std::max(0.0, end + (1 - end) *
                                                     (1 + std::cos(std::numbers::pi * (iteration - warmup.steps + 1) /
                                                                   (total - warmup.steps))) /
                                                     2);
  return m.schedule.learning_rate * ratio;
}

double deepspeed_lr_range_test(const ScheduleMoment& m) {
  const ScheduleParameters& p = m.parameters;
  const double least = p.real("lr_range_test_min_lr", 1e-3, 0), growth = p.real("lr_range_test_step_rate", 1, 0);
  const double interval = m.step / p.whole("lr_range_test_step_size", 2000, 1);
  if (p.given("lr_range_test_max_lr")) {
    const double most = p.real("lr_range_test_max_lr", 0, 0);
    if (!(least > 0 && most > least))
      throw p.bad("lr_range_test_max_lr", concat(format_real(most), " must be above lr_range_test_min_lr ",
                                                 format_real(least), ", which must be above 0"));
    return least * std::pow(most / least, interval);
  }
  return least * (1 + growth * (p.flag("lr_range_test_staircase", false) ? std::floor(interval) : interval));
}

double deepspeed_one_cycle(const ScheduleMoment& m) {
  const ScheduleParameters& p = m.parameters;
  for (const char* name : {"cycle_min_lr", "cycle_max_lr"})
    if (!p.given(name)) throw p.bad(name, "it must be set");
  const double least = p.real("cycle_min_lr", 0, 0), most = p.real("cycle_max_lr", 0, 0);
  const double decay = p.real("decay_lr_rate", 0, 0);
  const Cycle cycle(m);
  if (m.step == 0) return least;
  if (cycle.lasts(m.step)) return least + (most - least) * cycle.height(m.step);
  return least / (1 + decay * cycle.intervals(m.step));
}

std::optional<Betas> deepspeed_one_cycle_betas(const ScheduleMoment& m) {
  const ScheduleParameters& p = m.parameters;
  const double least = p.real("cycle_min_mom", 0.8, 0), most = p.real("cycle_max_mom", 0.9, 0);
  const double decay = p.real("decay_mom_rate", 0, 0);
  if (!p.flag("cycle_momentum", true)) return std::nullopt;
  const Cycle cycle(m);
  const double beta1 = m.step == 0           ? least
                       : cycle.lasts(m.step) ? most - (most - least) * cycle.height(m.step)
                                             : most * (1 + decay * cycle.intervals(m.step));
  if (!(beta1 < 1))
    throw p.bad("cycle_max_mom, decay_mom_rate",
                concat("the momentum of step ", m.step, " would be ", format_real(beta1), "; it must stay below 1"));
  return Betas{beta1, 0.99};
}

}  // namespace tessera::optim
