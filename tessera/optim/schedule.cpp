// Learning-rate schedules: transformers/optimization.py, _get_*_lr_lambda.

#include <tessera/optim/schedule.h>

#include <tessera/config/rules/named_parameters.h>
#include <tessera/optim/deepspeed_schedules.h>

#include <array>
#include <numbers>

namespace tessera::optim {
namespace {

using Moment = ScheduleMoment;

double wave(double cycles, double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * progress)); }

double constant(const Moment&) { return 1; }

double linear(const Moment& m) { return std::max(0.0, (m.total - m.step) / std::max(1.0, m.total - m.warmup)); }

double cosine(const Moment& m) { return std::max(0.0, wave(m.parameters.real("num_cycles", 0.5, 0), m.progress())); }

double cosine_with_restarts(const Moment& m) {
  const double cycles = m.parameters.real("num_cycles", 1, 0);
  if (m.progress() >= 1) return 0;
  return std::max(0.0, wave(0.5, std::fmod(cycles * m.progress(), 1)));
}

/// min_lr or min_lr_rate, as a share of the learning rate.
double least_share(const Moment& m) {
  const ScheduleParameters& p = m.parameters;
  if (!p.given("min_lr") == !p.given("min_lr_rate"))
    throw p.bad("min_lr, min_lr_rate", "exactly one of the two must be set");
  if (p.given("min_lr") && !(m.schedule.learning_rate > 0)) throw p.bad("min_lr", "it needs a --learning_rate above 0");
  return p.given("min_lr") ? p.real("min_lr", 0, 0) / m.schedule.learning_rate : p.real("min_lr_rate", 0, 0);
}

double cosine_with_min_lr(const Moment& m) {
  const double least = least_share(m);
  return std::max(0.0, wave(m.parameters.real("num_cycles", 0.5, 0), m.progress()) * (1 - least) + least);
}

double cosine_warmup_with_min_lr(const Moment& m) {
  const ScheduleParameters& p = m.parameters;
  const double least = least_share(m), cycles = p.real("num_cycles", 0.5, 0);
  if (m.step < m.warmup) {
    if (!p.given("warmup_lr_rate")) return (m.step + 1) / std::max(1.0, m.warmup);
    const double start = p.real("warmup_lr_rate", 0, 0);
    return start + (1 - start) * m.step / std::max(1.0, m.warmup - 1);
  }
  const double progress = (m.step - m.warmup + 1) / std::max(1.0, m.total - m.warmup);
  return std::max(0.0, wave(cycles, progress) * (1 - least) + least);
}

double polynomial(const Moment& m) {
  const double peak = m.schedule.learning_rate, end = m.parameters.real("lr_end", 1e-7, 0);
  const double power = m.parameters.real("power", 1, 0);
  if (!(peak > end))
    throw m.parameters.bad("lr_end", concat(format_real(end), " must be below --learning_rate ", format_real(peak)));
  if (m.step > m.total) return end / peak;
  return ((peak - end) * std::pow(1 - m.progress(), power) + end) / peak;
}

double inverse_sqrt(const Moment& m) {
  const double timescale = m.parameters.given("timescale") ? m.parameters.whole("timescale", 1)
                           : m.warmup > 0                  ? m.warmup
                                                           : 10000;
  return 1 / std::sqrt((m.step + (timescale - m.warmup)) / timescale);
}

/// Linear rise from warmup_init_lr (0) to the peak.
double warming_up(const Moment& m) {
  const double done = m.step / std::max(1.0, m.warmup), peak = m.schedule.learning_rate;
  if (!m.parameters.given("warmup_init_lr")) return done;
  const double begin = m.parameters.real("warmup_init_lr", 0, 0);
  if (begin > peak)
    throw m.parameters.bad("warmup_init_lr",
                           concat(format_real(begin), " is more than --learning_rate ", format_real(peak)));
  return begin == peak ? 1 : (begin + (peak - begin) * done) / peak;
}

double warmup_stable_decay(const Moment& m) {
  const ScheduleParameters& p = m.parameters;
  static const std::vector<std::string> rises = {"linear", "cosine", "1-sqrt"};
  static const std::vector<std::string> falls = {"linear", "cosine", "1-sqrt", "exponential"};
  const std::string rise = p.word("warmup_type", "linear", rises), fall = p.word("decay_type", "cosine", falls);
  const double least = p.real("min_lr_ratio", 0, 0), cycles = p.real("num_cycles", 0.5, 0);
  if (!p.given("num_decay_steps")) throw p.bad("num_decay_steps", "it must be set");
  const double decay = p.whole("num_decay_steps", 0);
  const double stable = p.given("num_stable_steps") ? p.whole("num_stable_steps", 0) : m.total - m.warmup - decay;
  if (stable < 0)
    throw p.bad("num_decay_steps", concat(decay, " and ", m.warmup, " steps of warm-up exceed the total of ", m.total));
  const auto above_least = [&](double factor) { return std::max(0.0, factor * (1 - least) + least); };
  if (m.step < m.warmup) {
    if (p.given("warmup_init_lr")) return warming_up(m);
    const double done = m.step / std::max(1.0, m.warmup);
    return above_least(rise == "linear" ? done : rise == "cosine" ? 1 - wave(0.5, done) : 1 - std::sqrt(1 - done));
  }
  if (m.step < m.warmup + stable) return 1;
  if (m.step >= m.warmup + stable + decay) return least;
  const double done = (m.step - m.warmup - stable) / std::max(1.0, decay);
  return above_least(fall == "linear"        ? 1 - done
                     : fall == "cosine"      ? wave(cycles, done)
                     : fall == "exponential" ? 2 * std::pow(0.5, done) - 1
                                             : 1 - std::sqrt(done));
}

struct Kind {
  ScheduleType type;
  double (*value)(const Moment&);
  enum { no_warmup, linear_warmup, own_warmup } warmup = linear_warmup;
  bool is_rate = false;  // value is the learning rate itself, not a factor
};

const std::vector<Kind>& kinds() {
  using T = ScheduleType;
  static const std::vector<Kind> all = {
      {T::linear, linear},
      {T::cosine, cosine},
      {T::constant, constant, Kind::no_warmup},
      {T::constant_with_warmup, constant},
      {T::polynomial, polynomial},
      {T::inverse_sqrt, inverse_sqrt},
      {T::cosine_with_restarts, cosine_with_restarts},
      {T::cosine_with_min_lr, cosine_with_min_lr},
      {T::warmup_stable_decay, warmup_stable_decay, Kind::own_warmup},
      {T::cosine_warmup_with_min_lr, cosine_warmup_with_min_lr, Kind::own_warmup},
      {T::reduce_lr_on_plateau, constant, Kind::no_warmup},
      {T::warmup_lr, deepspeed_warmup_lr, Kind::own_warmup, true},
      {T::warmup_decay_lr, deepspeed_warmup_decay_lr, Kind::own_warmup, true},
      {T::warmup_cosine_lr, deepspeed_warmup_cosine_lr, Kind::own_warmup, true},
      {T::one_cycle, deepspeed_one_cycle, Kind::no_warmup, true},
      {T::lr_range_test, deepspeed_lr_range_test, Kind::no_warmup, true},
  };
  return all;
}

const Kind& kind_of(const Schedule& schedule) {
  const auto kind =
      std::find_if(kinds().begin(), kinds().end(), [&](const Kind& k) { return k.type == schedule.type; });
  TESSERA_CHECK(kind != kinds().end(), "no formula for the schedule ", schedule.type);
  config::check_parameters(schedule.type, schedule.parameters);
  return *kind;
}

double value_of(const Schedule& schedule, const Kind& kind, std::int64_t step) {
  if (schedule.warmup_steps < 0 || schedule.total_steps < 0 || step < 0)
    throw InputError(concat("learning-rate schedule: step = ", step, ", warmup_steps = ", schedule.warmup_steps,
                            ", total_steps = ", schedule.total_steps, "; none may be negative"));
  const Moment m(schedule, step);
  if (kind.warmup == Kind::linear_warmup && step < schedule.warmup_steps) return warming_up(m);
  return kind.value(m);
}

}  // namespace

double schedule_factor(const Schedule& schedule, std::int64_t step) {
  const Kind& kind = kind_of(schedule);
  TESSERA_CHECK(!kind.is_rate, "the schedule ", schedule.type, " has its own learning rates, not factors");
  return value_of(schedule, kind, step);
}

double schedule_rate(const Schedule& schedule, std::int64_t step) {
  const Kind& kind = kind_of(schedule);
  const double value = value_of(schedule, kind, step);
  return kind.is_rate ? value : schedule.learning_rate * value;
}

std::optional<Betas> schedule_betas(const Schedule& schedule, std::int64_t step) {
  if (schedule.type != ScheduleType::one_cycle) return std::nullopt;
  return deepspeed_one_cycle_betas(Moment(schedule, step));
}

void check_schedule(const Schedule& schedule) {
  for (const std::int64_t step : {std::int64_t{0}, schedule.warmup_steps, schedule.total_steps}) {
    schedule_rate(schedule, step);
    schedule_betas(schedule, step);
  }
}

}  // namespace tessera::optim
