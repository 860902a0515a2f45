#include <tessera/xla/step/update_program.h>

#include <tessera/xla/hlo/operations.h>

namespace tessera::xla {
namespace {

using hlo::Function;
using hlo::Value;

/// One unit's parts while they are updated.
struct Parts {
  Value weights, first, second, gradients;
};

Value operator_of(Function& f, std::string_view name, const Value& a, const Value& b) {
  return hlo::binary(f, name, a, b.type.sizes.empty() && !a.type.sizes.empty() ? hlo::expand(f, b, a.type.sizes) : b);
}
Value multiply(Function& f, const Value& a, const Value& b) { return operator_of(f, "multiply", a, b); }
Value add(Function& f, const Value& a, const Value& b) { return operator_of(f, "add", a, b); }
Value times(Function& f, const Value& a, double b) { return multiply(f, a, hlo::constant(f, b, a.type)); }

/// 1 - rate * decay where this device's part has weight decay, 1 elsewhere.
Value kept_share(Function& f, const FlatUnit& unit, bool divided, double decay, const Value& rate,
                 const hlo::Type& type) {
  const Value one = hlo::constant(f, 1, type);
  const Value less = operator_of(f, "subtract", one, times(f, rate, decay));
  if (unit.decayed == unit.elements) return less;
  // int64 positions: a unit may have more than 2^31 elements.
  const hlo::Type places{type.sizes, Element::int64};
  Value place = hlo::iota(f, 0, places);
  if (divided) {
    const Value device = hlo::convert(f, hlo::device_number(f), Element::int64);
    place = add(f, place, times(f, device, static_cast<double>(unit.shard)));
  }
  const Value decays = hlo::compare(f, "LT", place, hlo::constant(f, static_cast<double>(unit.decayed), places));
  return hlo::select(f, decays, less, one);
}

hlo::Type part_type(const FlatUnit& unit, bool shard) {
  return {{shard ? unit.shard : unit.elements}, Element::float32};
}

}  // namespace

std::string norm_program(const std::vector<FlatUnit>& units, int devices, bool shard) {
  Function f;
  std::vector<Value> gradients;
  int result = 0;
  for (const FlatUnit& unit : units)
    if (unit.trained) gradients.push_back(f.argument(part_type(unit, shard), shard ? -1 : result++));
  const hlo::Type scalar;
  Value squares = hlo::constant(f, 0, scalar);
  for (Value& gradient : gradients) {
    if (!shard) f.result(gradient = hlo::all_reduce(f, gradient, devices));
    squares = add(f, squares, hlo::reduce(f, "add", multiply(f, gradient, gradient), {0}));
  }
  if (shard) squares = hlo::all_reduce(f, squares, devices);
  f.result(hlo::unary(f, "sqrt", squares));
  return f.module(devices);
}

std::string update_program(const std::vector<FlatUnit>& units, int devices, bool shard, const AdamWOptions& adamw) {
  Function f;
  std::vector<const FlatUnit*> trained;
  std::vector<Parts> parts;
  int result = 0;
  for (const FlatUnit& unit : units) {
    if (!unit.trained) continue;
    trained.push_back(&unit);
    Parts p;
    for (Value* const value : {&p.weights, &p.first, &p.second, &p.gradients})
      *value = f.argument(part_type(unit, shard), result++);
    parts.push_back(p);
  }
  const hlo::Type scalar;
  const Value rate = f.argument(scalar), factor = f.argument(scalar);
  const Value correction1 = f.argument(scalar), correction2 = f.argument(scalar);
  for (std::size_t u = 0; u < parts.size(); ++u) {
    const Parts& p = parts[u];
    const Value g = multiply(f, p.gradients, factor);
    const Value first = add(f, times(f, p.first, adamw.beta1), times(f, g, 1 - adamw.beta1));
    const Value second = add(f, times(f, p.second, adamw.beta2), times(f, multiply(f, g, g), 1 - adamw.beta2));
    const Value root = hlo::unary(f, "sqrt", multiply(f, second, correction2));
    const Value denominator = add(f, root, hlo::constant(f, adamw.eps, root.type));
    const Value change = hlo::binary(f, "divide", multiply(f, multiply(f, first, correction1), rate), denominator);
    Value weights = p.weights;
    if (adamw.weight_decay != 0 && trained[u]->decayed > 0)
      weights = multiply(f, weights,
                         kept_share(f, *trained[u], shard && devices > 1, adamw.weight_decay, rate, weights.type));
    f.result(hlo::binary(f, "subtract", weights, change));
    f.result(first);
    f.result(second);
    f.result(hlo::constant(f, 0, p.gradients.type));
  }
  return f.module(devices);
}

}  // namespace tessera::xla
