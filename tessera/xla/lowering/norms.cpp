#include <tessera/xla/lowering/lowering.h>

#include <tessera/base/error.h>

namespace tessera::xla {
namespace {

using hlo::Sizes;
using hlo::Value;

/// The last `count` of `rank` dimensions, and those before them.
struct Axes {
  Sizes normalized, rows;
};
Axes axes(std::size_t rank, std::size_t count) {
  Axes result;
  for (std::size_t d = 0; d < rank; ++d)
    (d < rank - count ? result.rows : result.normalized).push_back(static_cast<std::int64_t>(d));
  return result;
}
Value mean(NodeLowering& n, const Value& x, const Sizes& over, const Sizes& sizes) {
  double count = 1;
  for (const std::int64_t d : over) count *= static_cast<double>(x.type.sizes[static_cast<std::size_t>(d)]);
  const Value total = hlo::reduce(n.f, "add", x, over);
  return hlo::reshape(n.f, hlo::binary(n.f, "divide", total, hlo::constant(n.f, count, total.type)), sizes);
}

/// native_layer_norm(x, normalized, weight, bias, eps) -> y, mean [..., 1], rstd [..., 1].
void layer_norm(NodeLowering& n) {
  const hlo::Type type{n.result_type().sizes, Element::float32};
  const Value x = n.operand(0, type);
  const Axes a = axes(type.sizes.size(), n.integers(1).size());
  const Sizes rows = n.result_type(1).sizes;
  const Value average = mean(n, x, a.normalized, rows);
  const Value centred = hlo::binary(n.f, "subtract", x, hlo::expand(n.f, average, type.sizes));
  const Value variance = mean(n, hlo::binary(n.f, "multiply", centred, centred), a.normalized, rows);
  const Value rstd =
      hlo::unary(n.f, "rsqrt", hlo::binary(n.f, "add", variance, hlo::constant(n.f, n.number(4), variance.type)));
  Value y = hlo::binary(n.f, "multiply", centred, hlo::expand(n.f, rstd, type.sizes));
  if (n.has(2)) y = hlo::binary(n.f, "multiply", y, n.operand(2, type));
  if (n.has(3)) y = hlo::binary(n.f, "add", y, n.operand(3, type));
  n.set(0, hlo::convert(n.f, y, n.result_type().element));
  n.set(1, average);
  n.set(2, rstd);
}

/// native_layer_norm_backward(dy, x, normalized, mean, rstd, weight, bias, mask) -> dx, dweight, dbias.
void layer_norm_backward(NodeLowering& n) {
  const hlo::Type type{n.tensor(1).type.sizes, Element::float32};
  const Value dy = n.operand(0, type), x = n.operand(1, type);
  const Value rstd = n.operand(4, type);
  const Value xhat = hlo::binary(n.f, "multiply", hlo::binary(n.f, "subtract", x, n.operand(3, type)), rstd);
  const Axes a = axes(type.sizes.size(), n.integers(2).size());
  Sizes rows = type.sizes;
  for (const std::int64_t d : a.normalized) rows[static_cast<std::size_t>(d)] = 1;
  if (n.wants(0)) {
    const Value scaled = n.has(5) ? hlo::binary(n.f, "multiply", dy, n.operand(5, type)) : dy;
    const auto average = [&](const Value& v) { return hlo::expand(n.f, mean(n, v, a.normalized, rows), type.sizes); };
    const Value along = hlo::binary(n.f, "multiply", xhat, average(hlo::binary(n.f, "multiply", scaled, xhat)));
    const Value dx =
        hlo::binary(n.f, "multiply", rstd,
                    hlo::binary(n.f, "subtract", hlo::binary(n.f, "subtract", scaled, average(scaled)), along));
    n.set(0, hlo::convert(n.f, dx, n.result_type(0).element));
  }
  if (n.wants(1))
    n.set(1, hlo::convert(n.f, hlo::reduce(n.f, "add", hlo::binary(n.f, "multiply", dy, xhat), a.rows),
                          n.result_type(1).element));
  if (n.wants(2)) n.set(2, hlo::convert(n.f, hlo::reduce(n.f, "add", dy, a.rows), n.result_type(2).element));
}

}  // namespace

const RuleTable& norm_rules() {
  static const RuleTable table = {
      {"native_layer_norm", &layer_norm},
      {"native_layer_norm_backward", &layer_norm_backward},
  };
  return table;
}

}  // namespace tessera::xla
