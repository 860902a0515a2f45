// Learning-rate schedules: transformers/optimization.py, _get_*_lr_lambda.

#include <tessera/optim/schedule.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <cmath>
#include <numbers>

namespace tessera::optim {
namespace {

/// The parameters of a schedule, read with ranges.
class Parameters {
 public:
  explicit Parameters(const Schedule& schedule) : schedule_(schedule) {}

  const Value* given(const std::string& name) const {
    for (const auto& [key, value] : schedule_.parameters)
      if (key == name && !value.is_null()) return &value;
    return nullptr;
  }
  /// At least `least`.
  double real(const std::string& name, double otherwise, double least) const {
    const Value* value = given(name);
    if (!value) return otherwise;
    const double x = value->as_real();
    if (!(x >= least) || !std::isfinite(x)) throw bad(name, concat(format_real(x), " must be at least ", least));
    return x;
  }
  double whole(const std::string& name, double least) const {
    return real(name, static_cast<double>(given(name)->as_int()), least);
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

/// What every formula starts from.
struct Moment {
  const Schedule& schedule;
  Parameters parameters;
  double step, warmup, total;

  /// Share of the steps after the warm-up that are done.
  double progress() const { return (step - warmup) / std::max(1.0, total - warmup); }
};

double wave(double cycles, double progress) { return 0.5 * (1 + std::cos(std::numbers::pi * cycles * 2 * progress)); }

double constant(const Moment&) { return 1; }

double linear(const Moment& m) { return std::max(0.0, (m.total - m.step) / std::max(1.0, m.total - m.warmup)); }

double cosine(const Moment& m) { return std::max(0.0, wave(m.parameters.real("num_cycles", 0.5, 0), m.progress())); }

double cosine_with_restarts(const Moment& m) {
  const double cycles = m.parameters.real("num_cycles", 1, 0);
  if (m.progress() >= 1) return 0;
  return std::max(0.0, wave(0.5, std::fmod(cycles * m.progress(), 1)));
}

double cosine_with_min_lr(const Moment& m) {
  const Parameters& p = m.parameters;
  if (!p.given("min_lr") == !p.given("min_lr_rate"))
    throw p.bad("min_lr, min_lr_rate", "exactly one of the two must be given");
  if (p.given("min_lr") && !(m.schedule.learning_rate > 0)) throw p.bad("min_lr", "it needs a --learning_rate above 0");
  const double least =
      p.given("min_lr") ? p.real("min_lr", 0, 0) / m.schedule.learning_rate : p.real("min_lr_rate", 0, 0);
  return std::max(0.0, wave(p.real("num_cycles", 0.5, 0), m.progress()) * (1 - least) + least);
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

double warmup_stable_decay(const Moment& m) {
  const Parameters& p = m.parameters;
  static const std::vector<std::string> shapes = {"linear", "cosine", "1-sqrt"};
  const std::string rise = p.word("warmup_type", "linear", shapes), fall = p.word("decay_type", "cosine", shapes);
  const double least = p.real("min_lr_ratio", 0, 0), cycles = p.real("num_cycles", 0.5, 0);
  if (!p.given("num_decay_steps")) throw p.bad("num_decay_steps", "it must be given");
  const double decay = p.whole("num_decay_steps", 0);
  const double stable = p.given("num_stable_steps") ? p.whole("num_stable_steps", 0) : m.total - m.warmup - decay;
  if (stable < 0)
    throw p.bad("num_decay_steps", concat(decay, " and ", m.warmup, " steps of warm-up are more than all ", m.total));
  const auto above_least = [&](double factor) { return std::max(0.0, factor * (1 - least) + least); };
  if (m.step < m.warmup) {
    const double done = m.step / std::max(1.0, m.warmup);
    return above_least(rise == "linear" ? done : rise == "cosine" ? 1 - wave(0.5, done) : 1 - std::sqrt(1 - done));
  }
  if (m.step < m.warmup + stable) return 1;
  if (m.step >= m.warmup + stable + decay) return least;
  const double done = (m.step - m.warmup - stable) / std::max(1.0, decay);
  return above_least(fall == "linear" ? 1 - done : fall == "cosine" ? wave(cycles, done) : 1 - std::sqrt(done));
}

struct Kind {
  const char* type;
  std::vector<std::string> parameters;
  double (*factor)(const Moment&);
  enum { no_warmup, linear_warmup, own_warmup } warmup = linear_warmup;
};

const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {
      {"linear", {}, linear},
      {"cosine", {"num_cycles"}, cosine},
      {"constant", {}, constant, Kind::no_warmup},
      {"constant_with_warmup", {}, constant},
      {"polynomial", {"lr_end", "power"}, polynomial},
      {"inverse_sqrt", {"timescale"}, inverse_sqrt},
      {"cosine_with_restarts", {"num_cycles"}, cosine_with_restarts},
      {"cosine_with_min_lr", {"min_lr", "min_lr_rate", "num_cycles"}, cosine_with_min_lr},
      {"warmup_stable_decay",
       {"num_decay_steps", "num_stable_steps", "warmup_type", "decay_type", "min_lr_ratio", "num_cycles"},
       warmup_stable_decay,
       Kind::own_warmup},
  };
  return all;
}

InputError unknown(const std::string& what, const std::string& name, const std::vector<std::string>& known) {
  const auto near = nearest(name, known);
  return InputError(concat(what, " '", name, "' is unknown", near ? concat("; did you mean '", *near, "'?") : "",
                           known.empty() ? " (there are none)" : concat(" (known: ", join(known), ")")));
}

const Kind& kind_of(const Schedule& schedule) {
  const auto kind =
      std::find_if(kinds().begin(), kinds().end(), [&](const Kind& k) { return k.type == schedule.type; });
  if (kind == kinds().end()) {
    std::vector<std::string> types;
    for (const Kind& k : kinds()) types.push_back(k.type);
    throw unknown("lr_scheduler_type", schedule.type, types);
  }
  for (const auto& [key, value] : schedule.parameters)
    if (std::find(kind->parameters.begin(), kind->parameters.end(), key) == kind->parameters.end())
      throw unknown(concat("--lr_scheduler_kwargs: parameter of ", schedule.type), key, kind->parameters);
  return *kind;
}

}  // namespace

double schedule_factor(const Schedule& schedule, std::int64_t step) {
  const Kind& kind = kind_of(schedule);
  if (schedule.warmup_steps < 0 || schedule.total_steps < 0 || step < 0)
    throw InputError(concat("learning-rate schedule: step = ", step, ", warmup_steps = ", schedule.warmup_steps,
                            ", total_steps = ", schedule.total_steps, "; none may be negative"));
  const Moment m{schedule, Parameters(schedule), static_cast<double>(step), static_cast<double>(schedule.warmup_steps),
                 static_cast<double>(schedule.total_steps)};
  if (kind.warmup == Kind::linear_warmup && step < schedule.warmup_steps) return m.step / std::max(1.0, m.warmup);
  return kind.factor(m);
}

void check_schedule(const Schedule& schedule) { schedule_factor(schedule, schedule.warmup_steps); }

}  // namespace tessera::optim
