#include <tessera/xla/lowering/lowering.h>

#include <ATen/core/Scalar.h>
#include <c10/core/ScalarType.h>

#include <tessera/base/error.h>

#include <cmath>
#include <numbers>

namespace tessera::xla {
namespace {

using hlo::Value;

bool is_floating(Element element) {
  return element == Element::float16 || element == Element::bfloat16 || element == Element::float32 ||
         element == Element::float64;
}

Value times(NodeLowering& n, const Value& a, const Value& b) { return hlo::binary(n.f, "multiply", a, b); }
Value plus(NodeLowering& n, const Value& a, const Value& b) { return hlo::binary(n.f, "add", a, b); }
Value minus(NodeLowering& n, const Value& a, const Value& b) { return hlo::binary(n.f, "subtract", a, b); }
Value same(NodeLowering& n, double value, const Value& like) { return hlo::constant(n.f, value, like.type); }

/// a + alpha * b, a - alpha * b.
void scaled_sum(NodeLowering& n, std::string_view how) {
  const hlo::Type type = computed_type(n.result_type());
  Value b = n.operand(1, type);
  if (const double alpha = n.number(2); alpha != 1) b = times(n, b, same(n, alpha, b));
  set_converted(n, hlo::binary(n.f, how, n.operand(0, type), b));
}
void add(NodeLowering& n) { scaled_sum(n, "add"); }
void subtract(NodeLowering& n) { scaled_sum(n, "subtract"); }
/// b - alpha * a.
void reverse_subtract(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  Value a = n.operand(0, type);
  if (const double alpha = n.number(2); alpha != 1) a = times(n, a, same(n, alpha, a));
  set_converted(n, minus(n, n.operand(1, type), a));
}
void multiply(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  set_converted(n, hlo::binary(n.f, type.element == Element::predicate ? "and" : "multiply", n.operand(0, type),
                               n.operand(1, type)));
}
void divide(NodeLowering& n) {
  if (n.node().overload.ends_with("_mode") && n.has(2))
    throw InputError("device xla: a division with rounding_mode cannot be compiled");
  const hlo::Type type = computed_type(n.result_type());
  set_converted(n, hlo::binary(n.f, "divide", n.operand(0, type), n.operand(1, type)));
}
void maximum(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  set_converted(n, hlo::binary(n.f, "maximum", n.operand(0, type), n.operand(1, type)));
}
void minimum(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  set_converted(n, hlo::binary(n.f, "minimum", n.operand(0, type), n.operand(1, type)));
}
void clamp(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  Value x = n.operand(0, type);
  if (n.has(1)) x = hlo::binary(n.f, "maximum", x, n.operand(1, type));
  if (n.has(2)) x = hlo::binary(n.f, "minimum", x, n.operand(2, type));
  set_converted(n, x);
}

void power(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  const Value x = n.operand(0, type);
  if (!n.node().arguments[1].tensors) {
    const double exponent = n.number(1);
    if (exponent == 1) return set_converted(n, x);
    if (exponent == 2) return set_converted(n, times(n, x, x));
    if (exponent == 3) return set_converted(n, times(n, times(n, x, x), x));
    if (exponent == 0.5) return set_converted(n, hlo::unary(n.f, "sqrt", x));
    if (exponent == -0.5) return set_converted(n, hlo::unary(n.f, "rsqrt", x));
  }
  set_converted(n, hlo::binary(n.f, "power", x, n.operand(1, type)));
}

/// A StableHLO operation with one operand.
void one(NodeLowering& n, std::string_view name) {
  set_converted(n, hlo::unary(n.f, name, n.operand(0, computed_type(n.result_type()))));
}

// ---- activations ----
Value logistic(NodeLowering& n, const Value& x) { return hlo::unary(n.f, "logistic", x); }

void silu(NodeLowering& n) {
  const Value x = n.operand(0, computed_type(n.result_type()));
  set_converted(n, times(n, x, logistic(n, x)));
}
/// dy * s * (1 + x * (1 - s)), s = 1 / (1 + exp(-x)).
void silu_backward(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  const Value dy = n.operand(0, type), x = n.operand(1, type), s = logistic(n, x);
  const Value inner = plus(n, same(n, 1, x), times(n, x, minus(n, same(n, 1, x), s)));
  set_converted(n, times(n, dy, times(n, s, inner)));
}
void sigmoid_backward(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  const Value dy = n.operand(0, type), y = n.operand(1, type);
  set_converted(n, times(n, dy, times(n, y, minus(n, same(n, 1, y), y))));
}
void tanh_backward(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  const Value dy = n.operand(0, type), y = n.operand(1, type);
  set_converted(n, times(n, dy, minus(n, same(n, 1, y), times(n, y, y))));
}
void relu(NodeLowering& n) {
  const Value x = n.operand(0, n.result_type());
  set_converted(n, hlo::binary(n.f, "maximum", x, same(n, 0, x)));
}
void threshold_backward(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  const Value dy = n.operand(0, type), x = n.operand(1, type);
  set_converted(n, hlo::select(n.f, hlo::compare(n.f, "GT", x, same(n, n.number(2), x)), dy, same(n, 0, dy)));
}

constexpr double tanh_scale = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double tanh_cubic = 0.044715;
/// tanh(sqrt(2/pi) (x + 0.044715 x^3)).
Value gelu_tanh(NodeLowering& n, const Value& x) {
  const Value cubic = times(n, times(n, times(n, x, x), x), same(n, tanh_cubic, x));
  return hlo::unary(n.f, "tanh", times(n, plus(n, x, cubic), same(n, tanh_scale, x)));
}
void gelu(NodeLowering& n) {
  const Value x = n.operand(0, computed_type(n.result_type()));
  const Value bell =
      n.string(1) == "tanh" ? gelu_tanh(n, x) : hlo::erf(n.f, times(n, x, same(n, std::numbers::sqrt2 / 2, x)));
  set_converted(n, times(n, times(n, x, same(n, 0.5, x)), plus(n, bell, same(n, 1, x))));
}
void gelu_backward(NodeLowering& n) {
  const hlo::Type type = computed_type(n.result_type());
  const Value dy = n.operand(0, type), x = n.operand(1, type), half = same(n, 0.5, x), one_of = same(n, 1, x);
  Value slope;
  if (n.string(2) == "tanh") {
    const Value t = gelu_tanh(n, x);
    const Value inner =
        times(n, plus(n, one_of, times(n, times(n, x, x), same(n, 3 * tanh_cubic, x))), same(n, tanh_scale, x));
    const Value right = times(n, times(n, times(n, x, half), minus(n, one_of, times(n, t, t))), inner);
    slope = plus(n, times(n, half, plus(n, one_of, t)), right);
  } else {
    const Value bell = hlo::erf(n.f, times(n, x, same(n, std::numbers::sqrt2 / 2, x)));
    const Value density = times(n, hlo::unary(n.f, "exponential", times(n, times(n, x, x), same(n, -0.5, x))),
                                same(n, std::numbers::inv_sqrtpi / std::numbers::sqrt2, x));
    slope = plus(n, times(n, half, plus(n, one_of, bell)), times(n, x, density));
  }
  set_converted(n, times(n, dy, slope));
}
/// log(1 + exp(beta x)) / beta, x itself past the threshold.
void softplus(NodeLowering& n) {
  const Value x = n.operand(0, computed_type(n.result_type()));
  const Value scaled = times(n, x, same(n, n.number(1), x));
  const Value soft = hlo::binary(n.f, "divide", hlo::unary(n.f, "log_plus_one", hlo::unary(n.f, "exponential", scaled)),
                                 same(n, n.number(1), x));
  set_converted(n, hlo::select(n.f, hlo::compare(n.f, "GT", scaled, same(n, n.number(2), x)), x, soft));
}

// ---- predicates ----
/// Compares the operands in LibTorch's promoted type.
void compare(NodeLowering& n, std::string_view how) {
  hlo::Type type{n.result_type().sizes, n.tensor(0).type.element};
  if (n.node().arguments[1].tensors) {
    const Value& other = n.tensor(1);
    const bool wider = is_floating(other.type.element) == is_floating(type.element)
                           ? bytes_of(other.type.element) > bytes_of(type.element)
                           : is_floating(other.type.element);
    if (wider && !other.type.sizes.empty()) type.element = other.type.element;
  } else if (!is_floating(type.element) && n.number(1) != std::floor(n.number(1))) {
    type.element = Element::float32;
  }
  set_converted(n, hlo::compare(n.f, how, n.operand(0, type), n.operand(1, type)));
}
void bitwise(NodeLowering& n, std::string_view how) {
  const hlo::Type type = n.result_type();
  set_converted(n, hlo::binary(n.f, how, n.operand(0, type), n.operand(1, type)));
}
void where(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  const Value predicate = n.operand(0, {type.sizes, Element::predicate});
  set_converted(n, hlo::select(n.f, predicate, n.operand(1, type), n.operand(2, type)));
}
void masked_fill(NodeLowering& n) {
  const hlo::Type type = n.result_type();
  const Value predicate = n.operand(1, {type.sizes, Element::predicate});
  set_converted(n, hlo::select(n.f, predicate, n.operand(2, type), n.operand(0, type)));
}

// ---- values without operands, and conversions ----
void filled_like(NodeLowering& n, double value) { n.set(0, hlo::constant(n.f, value, n.result_type())); }
void full_like(NodeLowering& n) { filled_like(n, n.number(1)); }
void new_full(NodeLowering& n) { filled_like(n, n.number(2)); }
void fill(NodeLowering& n) { n.set(0, n.operand(1, n.result_type())); }
/// copy_(self, source): the source with self's sizes and type.
void copy(NodeLowering& n) { n.set(0, n.operand(1, n.result_type())); }
void converted(NodeLowering& n) { n.set(0, n.operand(0, n.result_type())); }

}  // namespace

const RuleTable& elementwise_rules() {
  static const RuleTable table = {
      {"add", &add},
      {"sub", &subtract},
      {"rsub", &reverse_subtract},
      {"mul", &multiply},
      {"div", &divide},
      {"maximum", &maximum},
      {"minimum", &minimum},
      {"clamp", &clamp},
      {"clamp_min", &maximum},
      {"clamp_max", &minimum},
      {"pow", &power},
      {"exp", [](NodeLowering& n) { one(n, "exponential"); }},
      {"log", [](NodeLowering& n) { one(n, "log"); }},
      {"log1p", [](NodeLowering& n) { one(n, "log_plus_one"); }},
      {"neg", [](NodeLowering& n) { one(n, "negate"); }},
      {"abs", [](NodeLowering& n) { one(n, "abs"); }},
      {"sqrt", [](NodeLowering& n) { one(n, "sqrt"); }},
      {"rsqrt", [](NodeLowering& n) { one(n, "rsqrt"); }},
      {"sin", [](NodeLowering& n) { one(n, "sine"); }},
      {"cos", [](NodeLowering& n) { one(n, "cosine"); }},
      {"sign", [](NodeLowering& n) { one(n, "sign"); }},
      {"sgn", [](NodeLowering& n) { one(n, "sign"); }},
      {"tanh", [](NodeLowering& n) { one(n, "tanh"); }},
      {"sigmoid", [](NodeLowering& n) { one(n, "logistic"); }},
      {"logical_not", [](NodeLowering& n) { one(n, "not"); }},
      {"bitwise_not", [](NodeLowering& n) { one(n, "not"); }},
      {"silu", &silu},
      {"silu_backward", &silu_backward},
      {"sigmoid_backward", &sigmoid_backward},
      {"tanh_backward", &tanh_backward},
      {"relu", &relu},
      {"threshold_backward", &threshold_backward},
      {"gelu", &gelu},
      {"gelu_backward", &gelu_backward},
      {"softplus", &softplus},
      {"eq", [](NodeLowering& n) { compare(n, "EQ"); }},
      {"ne", [](NodeLowering& n) { compare(n, "NE"); }},
      {"lt", [](NodeLowering& n) { compare(n, "LT"); }},
      {"le", [](NodeLowering& n) { compare(n, "LE"); }},
      {"gt", [](NodeLowering& n) { compare(n, "GT"); }},
      {"ge", [](NodeLowering& n) { compare(n, "GE"); }},
      {"logical_and", [](NodeLowering& n) { bitwise(n, "and"); }},
      {"logical_or", [](NodeLowering& n) { bitwise(n, "or"); }},
      {"bitwise_and", [](NodeLowering& n) { bitwise(n, "and"); }},
      {"bitwise_or", [](NodeLowering& n) { bitwise(n, "or"); }},
      {"where", &where},
      {"masked_fill", &masked_fill},
      {"zeros_like", [](NodeLowering& n) { filled_like(n, 0); }},
      {"ones_like", [](NodeLowering& n) { filled_like(n, 1); }},
      {"empty_like", [](NodeLowering& n) { filled_like(n, 0); }},
      {"new_zeros", [](NodeLowering& n) { filled_like(n, 0); }},
      {"new_ones", [](NodeLowering& n) { filled_like(n, 1); }},
      {"new_empty", [](NodeLowering& n) { filled_like(n, 0); }},
      {"zero", [](NodeLowering& n) { filled_like(n, 0); }},
      {"full_like", &full_like},
      {"new_full", &new_full},
      {"fill", &fill},
      {"copy", &copy},
      {"_to_copy", &converted},
      {"clone", &converted},
      {"detach", &converted},
      {"alias", &converted},
  };
  return table;
}

}  // namespace tessera::xla
