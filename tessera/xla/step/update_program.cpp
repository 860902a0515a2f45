#include <tessera/xla/step/update_program.h>

#include <tessera/xla/hlo/operations.h>

#include <cmath>

namespace tessera::xla {
namespace {

using hlo::Function;
using hlo::Value;

Value operator_of(Function& f, std::string_view name, const Value& a, const Value& b) {
  return hlo::binary(f, name, a, b.type.sizes.empty() && !a.type.sizes.empty() ? hlo::expand(f, b, a.type.sizes) : b);
}
Value multiply(Function& f, const Value& a, const Value& b) { return operator_of(f, "multiply", a, b); }
Value add(Function& f, const Value& a, const Value& b) { return operator_of(f, "add", a, b); }
Value times(Function& f, const Value& a, double b) { return multiply(f, a, hlo::constant(f, b, a.type)); }

/// `yes` for elements of this device's part that have weight decay, `no` for the others.
Value where_decayed(Function& f, const FlatUnit& unit, bool divided, const Value& yes, const Value& no) {
  if (unit.decayed == unit.elements) return yes;
  // int64 positions: a unit may have more than 2^31 elements.
  const hlo::Type places{yes.type.sizes, Element::int64};
  Value place = hlo::iota(f, 0, places);
  if (divided) {
    const Value device = hlo::convert(f, hlo::device_number(f), Element::int64);
    place = add(f, place, times(f, device, static_cast<double>(unit.shard)));
  }
  const Value decays = hlo::compare(f, "LT", place, hlo::constant(f, static_cast<double>(unit.decayed), places));
  return hlo::select(f, decays, yes, no);
}

/// One unit's part during the update. `scalars` are update_scalars().
struct Part {
  Function& f;
  const FlatUnit& unit;
  bool divided;
  double weight_decay;
  const std::vector<Value>& scalars;
  Value weights, gradient;
  std::vector<Value> states;

  Value with(std::string_view name, const Value& a, const Value& b) const { return operator_of(f, name, a, b); }
  const Value& rate() const { return scalars[0]; }
  bool decays() const { return weight_decay != 0 && unit.decayed > 0; }
  /// Adds the decay to the gradient.
  void decay_gradient() {
    if (decays())
      gradient = where_decayed(f, unit, divided, add(f, gradient, times(f, weights, weight_decay)), gradient);
  }
  /// Decoupled decay: applied to the weights.
  void decay_weights() {
    if (!decays()) return;
    const Value one = hlo::constant(f, 1, weights.type);
    const Value less = with("subtract", one, times(f, rate(), weight_decay));
    weights = multiply(f, weights, where_decayed(f, unit, divided, less, one));
  }
  void subtract(const Value& change) { weights = with("subtract", weights, multiply(f, change, rate())); }
  /// a + (b - a) * weight.
  Value lerp(const Value& a, const Value& b, double weight) const {
    return add(f, a, times(f, with("subtract", b, a), weight));
  }
  Value root_plus(const Value& x, double epsilon) const {
    return add(f, hlo::unary(f, "sqrt", x), hlo::constant(f, epsilon, x.type));
  }

  /// Same arithmetic as torch.optim (optim/optimizer.h).
  void adam(const optim::AdamWOptions& o) {
    const Value g = gradient;
    states[0] = add(f, times(f, states[0], o.beta1), times(f, g, 1 - o.beta1));
    states[1] = add(f, times(f, states[1], o.beta2), times(f, multiply(f, g, g), 1 - o.beta2));
    const Value denominator = root_plus(multiply(f, states[1], scalars[3]), o.epsilon);
    subtract(with("divide", multiply(f, states[0], scalars[2]), denominator));
  }
  void update(const optim::AdamWOptions& o) {
    decay_weights();
    adam(o);
  }
  void update(const optim::AdamOptions& o) {
    decay_gradient();
    adam(o);
  }
  void update(const optim::SgdOptions& o) {
    decay_gradient();
    if (o.momentum == 0) return subtract(gradient);
    states[0] = add(f, times(f, states[0], o.momentum), gradient);
    subtract(o.nesterov ? add(f, gradient, times(f, states[0], o.momentum)) : states[0]);
  }
  void update(const optim::AdagradOptions& o) {
    decay_gradient();
    states[0] = add(f, states[0], multiply(f, gradient, gradient));
    subtract(with("divide", gradient, root_plus(states[0], o.epsilon)));
  }
  void update(const optim::RmspropOptions& o) {
    decay_gradient();
    const Value square = times(f, multiply(f, gradient, gradient), 1 - o.alpha);
    states[0] = add(f, times(f, states[0], o.alpha), square);
    Value spread = states[0];
    if (o.centered) {
      states[1] = lerp(states[1], gradient, 1 - o.alpha);
      spread = with("subtract", spread, multiply(f, states[1], states[1]));
    }
    const Value step = with("divide", gradient, root_plus(spread, o.epsilon));
    if (o.momentum == 0) return subtract(step);
    states.back() = add(f, times(f, states.back(), o.momentum), step);
    subtract(states.back());
  }
  void update(const optim::LionOptions& o) {
    decay_weights();
    subtract(hlo::unary(f, "sign", lerp(states[0], gradient, 1 - o.beta1)));
    states[0] = lerp(states[0], gradient, 1 - o.beta2);
  }
};

/// A unit as the programs have it: a device's part, or, in a global program, the whole, which the compiler divides.
struct Parts {
  int devices;
  bool shard, global;
  hlo::Type type(const FlatUnit& unit) const {
    if (global) return {unit.sizes, Element::float32};
    return {{shard ? unit.shard : unit.elements}, Element::float32};
  }
  hlo::Sharding by_rows(const FlatUnit& unit) const {
    return global ? hlo::by_rows(unit.sizes.size(), devices) : hlo::Sharding();
  }
  hlo::Sharding whole() const { return global ? hlo::replicated(devices) : hlo::Sharding(); }
  hlo::Ranks ranks() const { return global ? hlo::Ranks{.partitions = devices} : hlo::Ranks{.replicas = devices}; }
};

hlo::Sizes all_dimensions(const hlo::Type& type) {
  hlo::Sizes dimensions(type.sizes.size());
  for (std::size_t d = 0; d < dimensions.size(); ++d) dimensions[d] = static_cast<std::int64_t>(d);
  return dimensions;
}

}  // namespace

std::string norm_program(const std::vector<FlatUnit>& units, int devices, const TrainingOptions& options) {
  const Parts parts{devices, options.shard, options.global};
  const bool shard = options.shard;
  Function f;
  std::vector<Value> gradients;
  int result = 0;
  for (const FlatUnit& unit : units)
    if (unit.trained) gradients.push_back(f.argument(parts.type(unit), shard ? -1 : result++, parts.by_rows(unit)));
  const hlo::Type scalar;
  Value squares = hlo::constant(f, 0, scalar);
  for (Value& gradient : gradients) {
    if (!shard) f.result(gradient = hlo::all_reduce(f, gradient, devices));
    squares = add(f, squares, hlo::reduce(f, "add", multiply(f, gradient, gradient), all_dimensions(gradient.type)));
  }
  if (shard && !options.global) squares = hlo::all_reduce(f, squares, devices);
  f.result(hlo::unary(f, "sqrt", squares), parts.whole());
  return f.module(parts.ranks());
}

std::vector<std::string> state_names(const optim::ElementwiseOptions& optimizer) {
  if (const auto* const sgd = std::get_if<optim::SgdOptions>(&optimizer))
    return sgd->momentum > 0 ? std::vector<std::string>{"momentum_buffer"} : std::vector<std::string>();
  if (std::holds_alternative<optim::AdagradOptions>(optimizer)) return {"sum"};
  if (std::holds_alternative<optim::LionOptions>(optimizer)) return {"exp_avg"};
  const auto* const rmsprop = std::get_if<optim::RmspropOptions>(&optimizer);
  if (rmsprop == nullptr) return {"exp_avg", "exp_avg_sq"};
  std::vector<std::string> names = {"square_avg"};
  if (rmsprop->centered) names.emplace_back("grad_avg");
  if (rmsprop->momentum > 0) names.emplace_back("momentum_buffer");
  return names;
}

double first_state(const optim::ElementwiseOptions& optimizer) {
  const auto* const adagrad = std::get_if<optim::AdagradOptions>(&optimizer);
  return adagrad == nullptr ? 0 : adagrad->initial_accumulator_value;
}

std::vector<double> update_scalars(const optim::ElementwiseOptions& optimizer, double learning_rate, double factor,
                                   std::int64_t step) {
  const auto n = static_cast<double>(step);
  if (const auto* const adagrad = std::get_if<optim::AdagradOptions>(&optimizer))
    return {learning_rate / (1 + (n - 1) * adagrad->learning_rate_decay), factor};
  const optim::AdamWOptions* adam = std::get_if<optim::AdamWOptions>(&optimizer);
  if (adam == nullptr) adam = std::get_if<optim::AdamOptions>(&optimizer);
  if (adam == nullptr) return {learning_rate, factor};
  if (!adam->bias_correction) return {learning_rate, factor, 1, 1};
  return {learning_rate, factor, 1 / (1 - std::pow(adam->beta1, n)), 1 / (1 - std::pow(adam->beta2, n))};
}

std::string update_program(const std::vector<FlatUnit>& units, int devices, const TrainingOptions& options) {
  const Parts layout{devices, options.shard, options.global};
  Function f;
  const std::size_t states = state_names(options.optimizer).size();
  std::vector<Value> scalars;
  std::vector<Part> parts;
  int result = 0;
  for (const FlatUnit& unit : units) {
    if (!unit.trained) continue;
    const auto next = [&] { return f.argument(layout.type(unit), result++, layout.by_rows(unit)); };
    Part part{.f = f,
              .unit = unit,
              .divided = options.shard && !options.global && devices > 1,
              .weight_decay = options.weight_decay,
              .scalars = scalars,
              .weights = next(),
              .gradient = {},
              .states = {}};
    for (std::size_t s = 0; s < states; ++s) part.states.push_back(next());
    part.gradient = next();
    parts.push_back(std::move(part));
  }
  for (std::size_t s = 0; s < update_scalars(options.optimizer, 0, 0, 1).size(); ++s)
    scalars.push_back(f.argument({}, -1, layout.whole()));
  for (Part& part : parts) {
    const hlo::Type type = part.gradient.type;
    part.gradient = multiply(f, part.gradient, scalars[1]);
    std::visit([&part](const auto& o) { part.update(o); }, options.optimizer);
    const hlo::Sharding sharding = layout.by_rows(part.unit);
    f.result(part.weights, sharding);
    for (const Value& state : part.states) f.result(state, sharding);
    f.result(hlo::constant(f, 0, type), sharding);
  }
  return f.module(layout.ranks());
}

std::int64_t bytes_of_states(const std::vector<FlatUnit>& units, const TrainingOptions& options) {
  const auto kept = static_cast<std::int64_t>(2 + state_names(options.optimizer).size());  // + weights, gradients
  std::int64_t bytes = 0;
  for (const FlatUnit& unit : units)
    bytes += (unit.trained ? 4 * kept : 4) * (options.shard ? unit.shard : unit.elements);
  return bytes;
}

}  // namespace tessera::xla
