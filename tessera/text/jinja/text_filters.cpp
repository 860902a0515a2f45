#include <algorithm>
#include <cmath>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/filters.h>
#include <tessera/text/jinja/format.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>
#include <tessera/text/jinja/text_functions.h>

namespace tessera::text::jinja {
namespace {

template <Case wanted>
Value case_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound(wanted == Case::upper ? "upper" : "lower", given, {});
  return machine.text(to_case(to_str(machine, input), wanted));
}

Value capitalize_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("capitalize", given, {});
  return machine.text(capitalized(to_str(machine, input)));
}

/// Jinja's own `title`: words begin after white space and -({[<, unlike in str.title.
Value title_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("title", given, {});
  const std::string text = to_str(machine, input);
  std::string out;
  bool begins = true;
  for (const std::string_view character : characters_of(text)) {
    const bool between =
        space_at(character, 0) != 0 || std::string_view("-({[<").find(character) != std::string_view::npos;
    out += to_case(character, begins && !between ? Case::upper : Case::lower);
    begins = between;
  }
  return machine.text(std::move(out));
}

Value trim_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("trim", given, {"chars"});
  const std::string text = to_str(machine, input);
  std::optional<std::string_view> characters;
  if (bound[0] != nullptr && !bound[0]->is_none()) characters = bound.string_of(0);
  return machine.text(std::string(strip(text, characters, Side::both)));
}

Value replace_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("replace", given, {"old", "new", "count"}, 2);
  const bool all = bound[2] == nullptr || bound[2]->is_none();
  return machine.text(replaced(machine, to_str(machine, input), to_str(machine, *bound[0]), to_str(machine, *bound[1]),
                               all ? -1 : bound.integer_of(2, -1)));
}

Value string_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("string", given, {});
  return input.is_string() ? input : machine.text(to_str(machine, input));
}

Value safe_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("safe", given, {});
  std::string text = to_str(machine, input);
  return Value::safe(std::move(text));
}

Value escape_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("escape", given, {});
  if (input.is_safe()) return input;
  std::string text = escaped(to_str(machine, input));
  machine.charge(text.size());
  return Value::safe(std::move(text));
}

Value indent_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("indent", given, {"width", "first", "blank"});
  if (input.is_undefined()) fail(input.why());
  if (!input.is_string()) fail("indent takes a str, not a ", type_name(input));
  std::string indention;
  if (bound[0] != nullptr && bound[0]->is_string()) {
    indention = bound[0]->string();
  } else {
    const std::int64_t width = std::max<std::int64_t>(0, bound.integer_of(0, 4));
    machine.charge(static_cast<std::size_t>(width));
    indention.assign(static_cast<std::size_t>(width), ' ');
  }
  const bool first = bound.truth_of(1, false), blank = bound.truth_of(2, false);
  const std::string text =
      input.string() + "\n";  // as in Jinja: a text that ends with a line break keeps a last, empty line
  std::string out;
  bool begun = false;
  for (const std::string_view line : split_lines(text)) {
    const bool indented = begun ? blank || !line.empty() : first;
    machine.charge(line.size() + indention.size() + 1);
    if (begun) out += '\n';
    if (indented) out += indention;
    out += line;
    begun = true;
  }
  return Value::of(std::move(out));
}

Value format_filter(Machine& machine, const Value& input, const Given& given) {
  if (!given.plain.empty() && !given.named.empty()) fail("format takes either positional or named values, not both");
  const std::string format = to_str(machine, input);
  if (given.named.empty())
    return machine.text(percent_format(machine, format, machine.list(given.plain, Sequence::Kind::tuple)));
  Members members;
  for (const auto& [name, value] : given.named) members.emplace_back(Value::of(name), value);
  return machine.text(percent_format(machine, format, machine.dict(std::move(members))));
}

Value tojson_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("tojson", given, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ascii = bound.truth_of(0, false);
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    style.between_items = std::string(",");  // g++ 12 warns of an overlap if a literal is assigned
    if (bound[1]->is_string()) {
      style.indent = bound[1]->string();
    } else {
      const std::int64_t width = std::max<std::int64_t>(0, bound.integer_of(1, 0));
      machine.charge(static_cast<std::size_t>(width));
      style.indent = std::string(static_cast<std::size_t>(width), ' ');
    }
  }
  if (bound[2] != nullptr && !bound[2]->is_none()) {
    const Values separators = items_of(machine, *bound[2]);
    if (separators.size() != 2 || !separators[0].is_string() || !separators[1].is_string())
      fail("tojson: 'separators' must be two strings");
    style.between_items = separators[0].string();
    style.after_key = separators[1].string();
  }
  style.sort_keys = bound.truth_of(3, false);
  return Value::of(to_json(machine, input, style));
}

Value int_filter(Machine& /*machine*/, const Value& input, const Given& given) {
  const Bound bound("int", given, {"default", "base"});
  const Value otherwise = bound[0] == nullptr ? Value::of(0) : *bound[0];
  if (input.is_undefined()) fail(input.why());
  std::optional<double> real;
  if (input.is_string()) {
    const auto base = static_cast<int>(std::clamp<std::int64_t>(bound.integer_of(1, 10), -1, 37));
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    if (const auto whole = parse_python_integer(input.string(), base)) return Value::of(*whole);
    real = parse_python_real(input.string());
  } else if (input.is_integer()) {
    return Value::of(input.integer());
  } else if (input.is(Value::Kind::real)) {
    real = input.real();
    if (std::isinf(*real)) fail("an infinite number cannot be converted to int");
  }
  if (!real || !std::isfinite(*real)) return otherwise;
  if (std::fabs(*real) >= 9.2e18) fail("", *real, " as an integer does not fit in 64 bits");
  return Value::of(static_cast<std::int64_t>(*real));
}

Value float_filter(Machine& /*machine*/, const Value& input, const Given& given) {
  const Bound bound("float", given, {"default"});
  if (input.is_undefined()) fail(input.why());
  if (input.is_number()) return Value::of(input.real());
  if (input.is_string())
    if (const auto real = parse_python_real(input.string())) return Value::of(*real);
  return bound[0] == nullptr ? Value::of(0.0) : *bound[0];
}

Value abs_filter(Machine& /*machine*/, const Value& input, const Given& given) {
  const Bound bound("abs", given, {});
  if (input.is_undefined()) fail(input.why());
  if (!input.is_number()) fail("abs takes a number, not a ", type_name(input));
  if (input.is(Value::Kind::real)) return Value::of(std::fabs(input.real()));
  return input.integer() < 0 ? negate(input) : Value::of(input.integer());
}

Value default_filter(Machine& /*machine*/, const Value& input, const Given& given) {
  const Bound bound("default", given, {"default_value", "boolean"});
  const bool replaces = input.is_undefined() || (bound.truth_of(1, false) && !truth(input));
  if (!replaces) return input;
  return bound[0] == nullptr ? Value::of("") : *bound[0];
}

}  // namespace

const FilterTable& text_filters() {
  static const FilterTable table = {{"upper", case_filter<Case::upper>},
                                    {"lower", case_filter<Case::lower>},
                                    {"capitalize", capitalize_filter},
                                    {"title", title_filter},
                                    {"trim", trim_filter},
                                    {"replace", replace_filter},
                                    {"string", string_filter},
                                    {"safe", safe_filter},
                                    {"escape", escape_filter},
                                    {"e", escape_filter},
                                    {"indent", indent_filter},
                                    {"format", format_filter},
                                    {"tojson", tojson_filter},
                                    {"int", int_filter},
                                    {"float", float_filter},
                                    {"abs", abs_filter},
                                    {"default", default_filter},
                                    {"d", default_filter}};
  return table;
}

}  // namespace tessera::text::jinja
