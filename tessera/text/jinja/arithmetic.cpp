#include <cmath>

#include <tessera/text/jinja/format.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/text_functions.h>

namespace tessera::text::jinja {
namespace {

const char* symbol(Binary::Op op) {
  switch (op) {
    case Binary::Op::add:
      return "+";
    case Binary::Op::subtract:
      return "-";
    case Binary::Op::multiply:
      return "*";
    case Binary::Op::divide:
      return "/";
    case Binary::Op::floor_divide:
      return "//";
    case Binary::Op::modulo:
      return "%";
    case Binary::Op::power:
      return "**";
    default:
      return "?";
  }
}

[[noreturn]] void fail_zero() { fail("division by zero"); }

/// `value` is the output of an operation that may overflow, so it is read only if it did not.
std::int64_t checked(bool overflows, const std::int64_t& value) {
  if (overflows) fail("the result does not fit in 64 bits");
  return value;
}

std::int64_t floor_divided(std::int64_t a, std::int64_t b) {
  if (b == 0) fail_zero();
  if (b == -1) {
    std::int64_t negated = 0;
    return checked(__builtin_sub_overflow(std::int64_t{0}, a, &negated), negated);
  }
  return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

std::int64_t remainder_of(std::int64_t a, std::int64_t b) {
  if (b == 0) fail_zero();
  if (b == -1) return 0;
  const std::int64_t rest = a % b;
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

/// Python's float % and //: the remainder has the divisor's sign.
double real_remainder(double a, double b) {
  if (b == 0) fail_zero();
  double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  if ((b < 0) != (rest < 0)) rest += b;
  return rest;
}

double real_floor_divided(double a, double b) {
  if (b == 0) fail_zero();
  double rest = std::fmod(a, b), quotient = (a - rest) / b;
  if (rest != 0 && (b < 0) != (rest < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

Value integer_power(Machine& machine, std::int64_t base, std::int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0 cannot be raised to a negative power");
    return Value::of(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::of(exponent == 0 ? std::int64_t{1} : base);
  if (base == -1) return Value::of(exponent % 2 == 0 ? 1 : -1);
  std::int64_t result = 1;
  for (; exponent > 0; --exponent) {  // at most 63 iterations before it overflows
    machine.step();
    const bool overflows = __builtin_mul_overflow(result, base, &result);
    checked(overflows, result);
  }
  return Value::of(result);
}

Value integers(Machine& machine, Binary::Op op, std::int64_t a, std::int64_t b) {
  std::int64_t out = 0;
  switch (op) {
    case Binary::Op::add:
      return Value::of(checked(__builtin_add_overflow(a, b, &out), out));
    case Binary::Op::subtract:
      return Value::of(checked(__builtin_sub_overflow(a, b, &out), out));
    case Binary::Op::multiply:
      return Value::of(checked(__builtin_mul_overflow(a, b, &out), out));
    case Binary::Op::divide:
      if (b == 0) fail_zero();
      return Value::of(static_cast<double>(a) / static_cast<double>(b));
    case Binary::Op::floor_divide:
      return Value::of(floor_divided(a, b));
    case Binary::Op::modulo:
      return Value::of(remainder_of(a, b));
    default:
      return integer_power(machine, a, b);
  }
}

Value reals(Binary::Op op, double a, double b) {
  switch (op) {
    case Binary::Op::add:
      return Value::of(a + b);
    case Binary::Op::subtract:
      return Value::of(a - b);
    case Binary::Op::multiply:
      return Value::of(a * b);
    case Binary::Op::divide:
      if (b == 0) fail_zero();
      return Value::of(a / b);
    case Binary::Op::floor_divide:
      return Value::of(real_floor_divided(a, b));
    case Binary::Op::modulo:
      return Value::of(real_remainder(a, b));
    default:
      break;
  }
  const double power = std::pow(a, b);
  if (std::isinf(power) && !std::isinf(a) && !std::isinf(b)) fail("the power is out of range");
  if (std::isnan(power) && !std::isnan(a) && !std::isnan(b)) fail("the power is not a real number");
  return Value::of(power);
}

bool is_list_or_tuple(const Value& value) {
  return value.is_sequence(Sequence::Kind::list) || value.is_sequence(Sequence::Kind::tuple);
}

/// Repeats a text or a list `times` times.
Value repeated(Machine& machine, const Value& value, std::int64_t times) {
  const std::size_t count = times > 0 ? static_cast<std::size_t>(times) : 0;
  if (value.is_string()) {
    machine.charge(count, value.string().size());
    std::string out;
    if (!value.string().empty())
      for (std::size_t i = 0; i < count; ++i) out += value.string();
    return Value::of(std::move(out));
  }
  const Values& items = value.sequence().items;
  machine.charge(count, items.size() * sizeof(Value));
  Values out;
  if (!items.empty())
    for (std::size_t i = 0; i < count; ++i) out.insert(out.end(), items.begin(), items.end());
  return Value::of(Sequence{value.sequence().kind, std::move(out), 1, 0, ""});
}

Value joined(Machine& machine, const Value& a, const Value& b) {
  if (a.is_safe() || b.is_safe()) {
    std::string text =
        (a.is_safe() ? a.string() : escaped(a.string())) + (b.is_safe() ? b.string() : escaped(b.string()));
    machine.charge(text.size());
    return Value::safe(std::move(text));
  }
  if (a.is_string()) {
    machine.charge(a.string().size() + b.string().size());
    return Value::of(a.string() + b.string());
  }
  Values items = a.sequence().items;
  items.insert(items.end(), b.sequence().items.begin(), b.sequence().items.end());
  return machine.list(std::move(items), a.sequence().kind);
}

}  // namespace

Value apply(Machine& machine, Binary::Op op, const Value& a, const Value& b) {
  if (op == Binary::Op::modulo && a.is_string()) return machine.text(percent_format(machine, a.string(), b));
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) fail(value->why());
  if (a.is_integer() && b.is_integer()) return integers(machine, op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return reals(op, a.real(), b.real());
  if (op == Binary::Op::add) {
    if (a.is_string() && b.is_string()) return joined(machine, a, b);
    if (is_list_or_tuple(a) && b.is_sequence(a.sequence().kind)) return joined(machine, a, b);
    if (a.is_string()) fail("a str and a ", type_name(b), " are added: both must be str (or use ~)");
  }
  if (op == Binary::Op::multiply) {
    if (b.is_integer() && (a.is_string() || is_list_or_tuple(a))) return repeated(machine, a, b.integer());
    if (a.is_integer() && (b.is_string() || is_list_or_tuple(b))) return repeated(machine, b, a.integer());
  }
  fail("'", symbol(op), "' is not supported between a ", type_name(a), " and a ", type_name(b));
}

Value negate(const Value& value) {
  if (value.is_undefined()) fail(value.why());
  if (value.is(Value::Kind::real)) return Value::of(-value.real());
  if (!value.is_integer()) fail("a ", type_name(value), " cannot be negated");
  std::int64_t out = 0;
  return Value::of(checked(__builtin_sub_overflow(std::int64_t{0}, value.integer(), &out), out));
}

Value plus(const Value& value) {
  if (value.is_undefined()) fail(value.why());
  if (value.is(Value::Kind::real)) return value;
  if (!value.is_integer()) fail("'+' is applied to a ", type_name(value), ", must be a number");
  return Value::of(value.integer());
}

}  // namespace tessera::text::jinja
