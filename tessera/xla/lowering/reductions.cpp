#include <tessera/xla/lowering/lowering.h>

#include <tessera/base/error.h>

#include <cmath>

namespace tessera::xla {
namespace {

using hlo::Sizes;
using hlo::Value;

/// Argument i, a list of dimensions of x; empty: all dimensions.
Sizes dimensions(NodeLowering& n, std::size_t i, const Value& x) {
  Sizes result = n.integers(i);
  const auto rank = static_cast<std::int64_t>(x.type.sizes.size());
  if (result.empty())
    for (std::int64_t d = 0; d < rank; ++d) result.push_back(d);
  for (std::int64_t& d : result)
    if (d < 0) d += rank;
  return result;
}
std::int64_t elements(const Value& x, const Sizes& dimensions) {
  std::int64_t product = 1;
  for (const std::int64_t d : dimensions) product *= x.type.sizes.at(static_cast<std::size_t>(d));
  return product;
}
/// Sets result 0 to a reduced value, restoring dimensions of size 1 if they are kept.
void set_reduced(NodeLowering& n, const Value& value) {
  const hlo::Type type = n.result_type();
  n.set(0, hlo::reshape(n.f, hlo::convert(n.f, value, type.element), type.sizes));
}
bool by_dimension(NodeLowering& n) { return n.node().arguments.size() > 2; }

/// sum(x, dtype), sum.dim_IntList(x, dim, keepdim, dtype).
void sum(NodeLowering& n) {
  const Value x = hlo::convert(n.f, n.tensor(0), computed_type(n.result_type()).element);
  set_reduced(n, hlo::reduce(n.f, "add", x, dimensions(n, by_dimension(n) ? 1 : 0, x)));
}
void mean(NodeLowering& n) {
  const Value x = hlo::convert(n.f, n.tensor(0), computed_type(n.result_type()).element);
  const Sizes over = dimensions(n, by_dimension(n) ? 1 : 0, x);
  const Value total = hlo::reduce(n.f, "add", x, over);
  set_reduced(
      n, hlo::binary(n.f, "divide", total, hlo::constant(n.f, static_cast<double>(elements(x, over)), total.type)));
}
void largest(NodeLowering& n, std::string_view how) {
  const Value& x = n.tensor(0);
  set_reduced(n, hlo::reduce(n.f, how, x, dimensions(n, 1, x)));
}

/// x minus its maximum along d, its exponentials, and their sum [..., 1].
struct Shifted {
  Value x, exponentials, total;
};
Shifted shifted(NodeLowering& n, const Value& given, std::int64_t d) {
  const Value x = hlo::convert(n.f, given, computed_type(given.type).element);
  Sizes one = x.type.sizes;
  one.at(static_cast<std::size_t>(d)) = 1;
  const Value most = hlo::reshape(n.f, hlo::reduce(n.f, "maximum", x, {d}), one);
  Shifted s;
  s.x = hlo::binary(n.f, "subtract", x, hlo::expand(n.f, most, x.type.sizes));
  s.exponentials = hlo::unary(n.f, "exponential", s.x);
  s.total = hlo::reshape(n.f, hlo::reduce(n.f, "add", s.exponentials, {d}), one);
  return s;
}
Value over_dimension(NodeLowering& n, const Value& x, std::int64_t d) {
  Sizes one = x.type.sizes;
  one.at(static_cast<std::size_t>(d)) = 1;
  return hlo::expand(n.f, hlo::reshape(n.f, hlo::reduce(n.f, "add", x, {d}), one), x.type.sizes);
}
void softmax(NodeLowering& n) {
  const Value& x = n.tensor(0);
  const Shifted s = shifted(n, x, n.dimension(1, x.type.sizes.size()));
  set_reduced(n, hlo::binary(n.f, "divide", s.exponentials, hlo::expand(n.f, s.total, x.type.sizes)));
}
/// Softmax with zeros for rows that are entirely -infinity (fully masked).
void safe_softmax(NodeLowering& n) {
  const Value x = n.operand(0, computed_type(n.tensor(0).type));
  const std::int64_t d = n.dimension(1, x.type.sizes.size());
  const Shifted s = shifted(n, x, d);
  const Value y = hlo::binary(n.f, "divide", s.exponentials, hlo::expand(n.f, s.total, x.type.sizes));
  Sizes one = x.type.sizes;
  one[static_cast<std::size_t>(d)] = 1;
  const Value most = hlo::reshape(n.f, hlo::reduce(n.f, "maximum", x, {d}), one);
  const Value masked = hlo::compare(n.f, "EQ", most, hlo::constant(n.f, -HUGE_VAL, most.type));
  set_reduced(n, hlo::select(n.f, hlo::expand(n.f, masked, y.type.sizes), hlo::constant(n.f, 0, y.type), y));
}
void log_softmax(NodeLowering& n) {
  const Value& x = n.tensor(0);
  const Shifted s = shifted(n, x, n.dimension(1, x.type.sizes.size()));
  set_reduced(n, hlo::binary(n.f, "subtract", s.x, hlo::expand(n.f, hlo::unary(n.f, "log", s.total), x.type.sizes)));
}
/// y * (dy - sum(y * dy)).
void softmax_backward(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  const Value dy = n.operand(0, type), y = n.operand(1, type);
  const Value along = over_dimension(n, hlo::binary(n.f, "multiply", y, dy), n.dimension(2, type.sizes.size()));
  set_reduced(n, hlo::binary(n.f, "multiply", y, hlo::binary(n.f, "subtract", dy, along)));
}
/// dy - exp(y) * sum(dy).
void log_softmax_backward(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  const Value dy = n.operand(0, type), y = n.operand(1, type);
  const Value along = over_dimension(n, dy, n.dimension(2, type.sizes.size()));
  set_reduced(n,
              hlo::binary(n.f, "subtract", dy, hlo::binary(n.f, "multiply", hlo::unary(n.f, "exponential", y), along)));
}
void cumsum(NodeLowering& n) {
  // A product with a triangle of ones, because programs have no scan.
  const hlo::Type type = n.result_type();
  const std::int64_t d = n.dimension(1, type.sizes.size());
  const auto rank = static_cast<std::int64_t>(type.sizes.size());
  const std::int64_t size = type.sizes.at(static_cast<std::size_t>(d));
  const hlo::Type square{{size, size}, Element::int64};
  const Value ones =
      hlo::convert(n.f, hlo::compare(n.f, "LE", hlo::iota(n.f, 0, square), hlo::iota(n.f, 1, square)), type.element);
  const Value product =
      hlo::dot(n.f, n.operand(0, type), ones, {.batch_a = {}, .batch_b = {}, .contract_a = {d}, .contract_b = {0}});
  Sizes order;  // the product puts the summed dimension last
  for (std::int64_t i = 0; i < rank; ++i) order.push_back(i < d ? i : i == d ? rank - 1 : i - 1);
  set_reduced(n, rank == 1 ? product : hlo::transpose(n.f, product, order));
}

}  // namespace

const RuleTable& reduction_rules() {
  static const RuleTable table = {
      {"sum", &sum},
      {"mean", &mean},
      {"amax", [](NodeLowering& n) { largest(n, "maximum"); }},
      {"amin", [](NodeLowering& n) { largest(n, "minimum"); }},
      {"cumsum", &cumsum},
      {"_softmax", &softmax},
      {"_safe_softmax", &safe_softmax},
      {"_log_softmax", &log_softmax},
      {"_softmax_backward_data", &softmax_backward},
      {"_log_softmax_backward_data", &log_softmax_backward},
  };
  return table;
}

}  // namespace tessera::xla
