#include <tessera/text/jinja/filters.h>

#include <cmath>
#include <vector>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>

namespace tessera::text::jinja {
namespace {

using TestTable = std::map<std::string_view, TestFunction, std::less<>>;

template <bool (*holds)(const Value&)>
bool simple(Machine& /*machine*/, const Value& input, const Given& given) {
  const Bound bound("this test", given, {});
  return holds(input);
}

template <Comparison::Op op>
bool comparing(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("this test", given, {"other"}, 1);
  return compare(machine, op, input, *bound[0]);
}

bool is_defined(const Value& v) { return !v.is_undefined(); }
bool is_undefined(const Value& v) { return v.is_undefined(); }
bool is_none(const Value& v) { return v.is_none(); }
bool is_boolean(const Value& v) { return v.is(Value::Kind::boolean); }
bool is_true(const Value& v) { return v.is(Value::Kind::boolean) && v.boolean(); }
bool is_false(const Value& v) { return v.is(Value::Kind::boolean) && !v.boolean(); }
bool is_whole(const Value& v) { return v.is(Value::Kind::integer); }
bool is_real(const Value& v) { return v.is(Value::Kind::real); }
bool is_number(const Value& v) { return v.is_number(); }
bool is_string(const Value& v) { return v.is_string(); }
bool is_mapping(const Value& v) { return v.is_dict(); }
bool is_iterable(const Value& v) { return v.is_string() || v.is_dict() || v.is_sequence() || v.is_undefined(); }
bool is_sequence(const Value& v) {
  if (v.is_string() || v.is_dict() || v.is_undefined()) return true;
  return v.is_sequence(Sequence::Kind::list) || v.is_sequence(Sequence::Kind::tuple) ||
         v.is_sequence(Sequence::Kind::range);
}
bool is_callable(const Value& v) { return v.is_undefined() || v.as<Callable>() != nullptr; }
bool is_escaped(const Value& v) { return v.is_safe(); }

template <bool upper>
bool is_case(Machine& machine, const Value& input, const Given& given) {
  const Bound bound(upper ? "upper" : "lower", given, {});
  const std::string text = to_str(machine, input);
  return to_case(text, upper ? Case::upper : Case::lower) == text &&
         to_case(text, upper ? Case::lower : Case::upper) != text;
}

template <std::int64_t rest>
bool is_parity(Machine& machine, const Value& input, const Given& given) {
  const Bound bound(rest == 0 ? "even" : "odd", given, {});
  return equal(machine, apply(machine, Binary::Op::modulo, input, Value::of(2)), Value::of(rest));
}

bool is_divisible(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("divisibleby", given, {"num"}, 1);
  return equal(machine, apply(machine, Binary::Op::modulo, input, *bound[0]), Value::of(0));
}

bool is_same(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("sameas", given, {"other"}, 1);
  machine.step();
  return input.same(*bound[0]);
}

bool names_filter(Machine& /*machine*/, const Value& input, const Given& given) {
  const Bound bound("filter", given, {});
  return input.is_string() && is_filter(input.string());
}

bool names_test(Machine& /*machine*/, const Value& input, const Given& given) {
  const Bound bound("test", given, {});
  return input.is_string() && is_test(input.string());
}

const TestTable& tests() {
  using Op = Comparison::Op;
  static const TestTable table = {{"defined", simple<is_defined>},
                                  {"undefined", simple<is_undefined>},
                                  {"none", simple<is_none>},
                                  {"boolean", simple<is_boolean>},
                                  {"true", simple<is_true>},
                                  {"false", simple<is_false>},
                                  {"integer", simple<is_whole>},
                                  {"float", simple<is_real>},
                                  {"number", simple<is_number>},
                                  {"string", simple<is_string>},
                                  {"mapping", simple<is_mapping>},
                                  {"iterable", simple<is_iterable>},
                                  {"sequence", simple<is_sequence>},
                                  {"callable", simple<is_callable>},
                                  {"escaped", simple<is_escaped>},
                                  {"upper", is_case<true>},
                                  {"lower", is_case<false>},
                                  {"even", is_parity<0>},
                                  {"odd", is_parity<1>},
                                  {"divisibleby", is_divisible},
                                  {"sameas", is_same},
                                  {"filter", names_filter},
                                  {"test", names_test},
                                  {"in", comparing<Op::in>},
                                  {"==", comparing<Op::equal>},
                                  {"eq", comparing<Op::equal>},
                                  {"equalto", comparing<Op::equal>},
                                  {"!=", comparing<Op::unequal>},
                                  {"ne", comparing<Op::unequal>},
                                  {"<", comparing<Op::less>},
                                  {"lt", comparing<Op::less>},
                                  {"lessthan", comparing<Op::less>},
                                  {"<=", comparing<Op::less_equal>},
                                  {"le", comparing<Op::less_equal>},
                                  {">", comparing<Op::greater>},
                                  {"gt", comparing<Op::greater>},
                                  {"greaterthan", comparing<Op::greater>},
                                  {">=", comparing<Op::greater_equal>},
                                  {"ge", comparing<Op::greater_equal>}};
  return table;
}

FilterFunction find_filter(std::string_view name) {
  for (const FilterTable* table : {&text_filters(), &sequence_filters()})
    if (const auto found = table->find(name); found != table->end()) return found->second;
  return nullptr;
}

[[noreturn]] void fail_unknown(const char* what, std::string_view name, const std::vector<std::string>& known) {
  const auto near = nearest(name, known);
  fail("unknown ", what, " '", name, "'", near ? concat(" (near: '", *near, "')") : "");
}

}  // namespace

Value apply_filter(Machine& machine, std::string_view name, const Value& input, const Given& given) {
  machine.step();
  if (const FilterFunction filter = find_filter(name)) return filter(machine, input, given);
  std::vector<std::string> known;
  for (const FilterTable* table : {&text_filters(), &sequence_filters()})
    for (const auto& [one, function] : *table) known.emplace_back(one);
  fail_unknown("filter", name, known);
}

bool apply_test(Machine& machine, std::string_view name, const Value& input, const Given& given) {
  machine.step();
  if (const auto found = tests().find(name); found != tests().end()) return found->second(machine, input, given);
  std::vector<std::string> known;
  for (const auto& [one, function] : tests()) known.emplace_back(one);
  fail_unknown("test", name, known);
}

bool is_filter(std::string_view name) { return find_filter(name) != nullptr; }
bool is_test(std::string_view name) { return tests().contains(name); }

}  // namespace tessera::text::jinja
