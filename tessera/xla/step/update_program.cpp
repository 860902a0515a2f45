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
Value kept_share(Function& f, const FlatUnit& unit, const UpdateOptions& options, const Value& rate,
                 const hlo::Type& type) {
  const Value one = hlo::constant(f, 1, type);
  const Value less = operator_of(f, "subtract", one, times(f, rate, options.adamw.weight_decay));
  if (unit.decayed == unit.elements) return less;
  // int64 positions: a unit may have more than 2^31 elements.
  const hlo::Type places{type.sizes, Element::int64};
  Value place = hlo::iota(f, 0, places);
  if (options.shard && options.devices > 1) {
    const Value device = hlo::convert(f, hlo::device_number(f), Element::int64);
    place = add(f, place, times(f, device, static_cast<double>(unit.shard)));
  }
  const Value decays = hlo::compare(f, "LT", place, hlo::constant(f, static_cast<double>(unit.decayed), places));
  return hlo::select(f, decays, less, one);
}

}  // namespace

std::string update_program(const std::vector<FlatUnit>& units, const UpdateOptions& options) {
  Function f;
  std::vector<const FlatUnit*> trained;
  std::vector<Parts> parts;
  int result = 0;
  for (const FlatUnit& unit : units) {
    if (!unit.trained) continue;
    const hlo::Type type{{options.shard ? unit.shard : unit.elements}, Element::float32};
    trained.push_back(&unit);
    Parts p;
    for (Value* const value : {&p.weights, &p.first, &p.second, &p.gradients}) *value = f.argument(type, result++);
    parts.push_back(p);
  }
  const hlo::Type scalar;
  const Value rate = f.argument(scalar), factor = f.argument(scalar);
  const Value correction1 = f.argument(scalar), correction2 = f.argument(scalar);

  Value squares = hlo::constant(f, 0, scalar);
  std::vector<Value> gradients;
  for (const Parts& p : parts) {
    // Whole gradients are those of one device until here.
    const Value sum = options.shard ? p.gradients : hlo::all_reduce(f, p.gradients, options.devices);
    gradients.push_back(multiply(f, sum, factor));
    squares = add(f, squares, hlo::reduce(f, "add", multiply(f, gradients.back(), gradients.back()), {0}));
  }
  if (options.shard) squares = hlo::all_reduce(f, squares, options.devices);
  const Value norm = hlo::unary(f, "sqrt", squares);
  Value clip = hlo::constant(f, 1, scalar);
  if (options.max_grad_norm > 0) {  // torch.nn.utils.clip_grad_norm_
    const Value share = hlo::binary(f, "divide", hlo::constant(f, options.max_grad_norm, scalar),
                                    add(f, norm, hlo::constant(f, 1e-6, scalar)));
    clip = hlo::binary(f, "minimum", clip, share);
  }

  const AdamWOptions& adamw = options.adamw;
  for (std::size_t u = 0; u < parts.size(); ++u) {
    const Parts& p = parts[u];
    const Value g = options.max_grad_norm > 0 ? multiply(f, gradients[u], clip) : gradients[u];
    const Value first = add(f, times(f, p.first, adamw.beta1), times(f, g, 1 - adamw.beta1));
    const Value second = add(f, times(f, p.second, adamw.beta2), times(f, multiply(f, g, g), 1 - adamw.beta2));
    const Value root = hlo::unary(f, "sqrt", multiply(f, second, correction2));
    const Value denominator = add(f, root, hlo::constant(f, adamw.eps, root.type));
    const Value change = hlo::binary(f, "divide", multiply(f, multiply(f, first, correction1), rate), denominator);
    Value weights = p.weights;
    if (adamw.weight_decay != 0 && trained[u]->decayed > 0)
      weights = multiply(f, weights, kept_share(f, *trained[u], options, rate, weights.type));
    f.result(hlo::binary(f, "subtract", weights, change));
    f.result(first);
    f.result(second);
    f.result(hlo::constant(f, 0, p.gradients.type));
  }
  f.result(norm);
  return f.module(options.devices);
}

}  // namespace tessera::xla
