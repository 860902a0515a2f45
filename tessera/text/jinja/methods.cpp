#include <tessera/text/jinja/methods.h>

#include <algorithm>
#include <array>
#include <map>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/format.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>
#include <tessera/text/jinja/text_functions.h>
#include <tessera/text/unicode/code_set.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text::jinja {
namespace {

using Method = Value (*)(Machine& machine, const Value& self, const Given& given);
using Methods = std::map<std::string_view, Method, std::less<>>;

Value text_list(Machine& machine, const std::vector<std::string_view>& parts) {
  Values items;
  for (const std::string_view part : parts) items.push_back(machine.text(std::string(part)));
  return machine.list(std::move(items));
}

std::optional<std::string_view> optional_text(const Bound& bound, std::size_t i) {
  if (bound[i] == nullptr || bound[i]->is_none()) return std::nullopt;
  return bound.string_of(i);
}

template <Side side>
Value strip_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("strip", given, {"chars"});
  return machine.text(std::string(strip(self.string(), optional_text(bound, 0), side)));
}

template <bool from_right>
Value split_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("split", given, {"sep", "maxsplit"});
  machine.step(1 + self.string().size() / 8);
  return text_list(machine, split_text(self.string(), optional_text(bound, 0), bound.integer_of(1, -1), from_right));
}

Value splitlines(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("splitlines", given, {"keepends"});
  machine.step(1 + self.string().size() / 8);
  return text_list(machine, split_lines(self.string(), bound.truth_of(0, false)));
}

Value replace(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("replace", given, {"old", "new", "count"}, 2);
  return machine.text(
      replaced(machine, self.string(), bound.string_of(0), bound.string_of(1), bound.integer_of(2, -1)));
}

/// The slice of `text` given by arguments 1 and 2, in characters.
std::string_view part_of(Machine& machine, const Value& self, const Bound& bound, Value& storage) {
  if (bound[1] == nullptr && bound[2] == nullptr) return self.string();
  storage = slice_of(machine, self, bound[1], bound[2], nullptr);
  return storage.string();
}

template <bool at_end>
Value starts_or_ends(Machine& machine, const Value& self, const Given& given) {
  const Bound bound(at_end ? "endswith" : "startswith", given, {"prefix", "start", "end"}, 1);
  Value storage;
  const std::string_view text = part_of(machine, self, bound, storage);
  const auto fits = [&](const Value& what) {
    if (!what.is_string()) fail("startswith and endswith take a str, not a ", type_name(what));
    return at_end ? text.ends_with(what.string()) : text.starts_with(what.string());
  };
  if (!bound[0]->is_sequence(Sequence::Kind::tuple)) return Value::of(fits(*bound[0]));
  const Values& items = bound[0]->sequence().items;
  return Value::of(std::any_of(items.begin(), items.end(), fits));
}

template <bool from_right, bool must_be_there>
Value find_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound(must_be_there ? "index" : "find", given, {"sub", "start", "end"}, 1);
  Value storage;
  const std::string_view text = part_of(machine, self, bound, storage);
  machine.step(1 + text.size() / 64);
  const std::size_t at = from_right ? text.rfind(bound.string_of(0)) : text.find(bound.string_of(0));
  if (at == std::string_view::npos) {
    if (must_be_there) fail("the text does not contain '", bound.string_of(0), "'");
    return Value::of(-1);
  }
  std::int64_t before = 0;
  if (bound[1] != nullptr && !bound[1]->is_none()) {
    const auto count = static_cast<std::int64_t>(character_count(self.string()));
    before = bound.integer_of(1, 0);
    before = before < 0 ? std::max<std::int64_t>(0, before + count) : std::min(before, count);
  }
  return Value::of(before + static_cast<std::int64_t>(character_count(text.substr(0, at))));
}

Value count_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("count", given, {"sub", "start", "end"}, 1);
  Value storage;
  const std::string_view text = part_of(machine, self, bound, storage);
  machine.step(1 + text.size() / 64);
  return Value::of(count_of(text, bound.string_of(0)));
}

template <Case wanted>
Value case_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("a case method", given, {});
  return machine.text(to_case(self.string(), wanted));
}

Value capitalize(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("capitalize", given, {});
  return machine.text(capitalized(self.string()));
}

Value title(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("title", given, {});
  return machine.text(titled(self.string()));
}

Value join_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("join", given, {"iterable"}, 1);
  std::string out;
  std::size_t i = 0;
  for (const Value& item : items_of(machine, *bound[0])) {
    if (!item.is_string()) fail("join: item ", i, " is a ", type_name(item), ", must be a str");
    machine.charge(self.string().size() + item.string().size());
    if (i++ > 0) out += self.string();
    out += item.string();
  }
  return machine.text(std::move(out));
}

template <bool at_end>
Value remove_affix(Machine& machine, const Value& self, const Given& given) {
  const Bound bound(at_end ? "removesuffix" : "removeprefix", given, {"affix"}, 1);
  std::string_view text = self.string();
  const std::string& affix = bound.string_of(0);
  if (at_end && text.ends_with(affix)) text.remove_suffix(affix.size());
  if (!at_end && text.starts_with(affix)) text.remove_prefix(affix.size());
  return machine.text(std::string(text));
}

bool in_property(const char* property, std::uint32_t code) { return contains(*find_property(property), code); }
bool is_alpha(std::uint32_t code) { return in_property("L", code); }
bool is_decimal(std::uint32_t code) { return in_property("Nd", code); }
bool is_alphanumeric(std::uint32_t code) { return in_property("L", code) || in_property("N", code); }
bool is_white(std::uint32_t code) {
  std::string text;
  append_utf8(text, code);
  return space_at(text, 0) != 0;
}

/// Whether the text is not empty and `is` holds for every character.
template <bool (*is)(std::uint32_t)>
Value every(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("a character test method", given, {});
  const std::string& text = self.string();
  machine.step(1 + text.size());
  for (std::size_t at = 0; at < text.size(); at += character_size(text, at))
    if (!is(code_point_at(text, at).value)) return Value::of(false);
  return Value::of(!text.empty());
}

Value format_method(Machine& machine, const Value& self, const Given& given) {
  return machine.text(brace_format(machine, self.string(), given));
}

const Methods& text_methods() {
  static const Methods methods = {
      {"strip", strip_method<Side::both>},
      {"lstrip", strip_method<Side::left>},
      {"rstrip", strip_method<Side::right>},
      {"split", split_method<false>},
      {"rsplit", split_method<true>},
      {"splitlines", splitlines},
      {"replace", replace},
      {"startswith", starts_or_ends<false>},
      {"endswith", starts_or_ends<true>},
      {"find", find_method<false, false>},
      {"rfind", find_method<true, false>},
      {"index", find_method<false, true>},
      {"count", count_method},
      {"upper", case_method<Case::upper>},
      {"lower", case_method<Case::lower>},
      {"capitalize", capitalize},
      {"title", title},
      {"join", join_method},
      {"removeprefix", remove_affix<false>},
      {"removesuffix", remove_affix<true>},
      {"isalpha", every<is_alpha>},
      {"isdigit", every<is_decimal>},
      {"isalnum", every<is_alphanumeric>},
      {"isspace", every<is_white>},
      {"format", format_method},
  };
  return methods;
}

Value items_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("items", given, {});
  Values items;
  for (const auto& [key, value] : self.dict().members)
    items.push_back(machine.list({key, value}, Sequence::Kind::tuple));
  return machine.list(std::move(items), Sequence::Kind::items);
}

Value keys_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("keys", given, {});
  return machine.list(items_of(machine, self), Sequence::Kind::keys);
}

Value values_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("values", given, {});
  Values values;
  for (const auto& [key, value] : self.dict().members) values.push_back(value);
  return machine.list(std::move(values), Sequence::Kind::values);
}

Value get_method(Machine& machine, const Value& self, const Given& given) {
  if (!given.named.empty()) fail("get takes no named arguments");
  const Bound bound("get", given, {"key", "default"}, 1);
  if (!is_hashable(*bound[0])) fail("a ", type_name(*bound[0]), " cannot be a dict key");
  if (const Value* found = find_member(machine, self.dict().members, *bound[0])) return *found;
  return bound[1] == nullptr ? Value::none() : *bound[1];
}

Value copy_method(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("copy", given, {});
  machine.step();
  return self;  // immutable
}

Value list_index(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("index", given, {"value"}, 1);
  const Values& items = self.sequence().items;
  for (std::size_t i = 0; i < items.size(); ++i)
    if (equal(machine, items[i], *bound[0])) return Value::of(i);
  fail("the value is not in the ", type_name(self));
}

Value list_count(Machine& machine, const Value& self, const Given& given) {
  const Bound bound("count", given, {"value"}, 1);
  const Values& items = self.sequence().items;
  return Value::of(static_cast<std::int64_t>(
      std::count_if(items.begin(), items.end(), [&](const Value& item) { return equal(machine, item, *bound[0]); })));
}

const Methods& dict_methods() {
  static const Methods methods = {{"items", items_method},
                                  {"keys", keys_method},
                                  {"values", values_method},
                                  {"get", get_method},
                                  {"copy", copy_method}};
  return methods;
}

const Methods& list_methods() {
  static const Methods methods = {{"index", list_index}, {"count", list_count}, {"copy", copy_method}};
  return methods;
}

const Methods* methods_of(const Value& self) {
  if (self.is_string()) return &text_methods();
  if (self.is_dict()) return &dict_methods();
  if (self.is_sequence(Sequence::Kind::list) || self.is_sequence(Sequence::Kind::tuple)) return &list_methods();
  return nullptr;
}

constexpr std::array<std::string_view, 5> dict_changes = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array<std::string_view, 8> list_changes = {"append", "clear", "pop",    "reverse",
                                                          "insert", "sort",  "extend", "remove"};

}  // namespace

MethodKind method_kind(const Value& self, std::string_view name) {
  const auto among = [&](const auto& names) { return std::find(names.begin(), names.end(), name) != names.end(); };
  if (self.is_dict() && among(dict_changes)) return MethodKind::changing;
  if (self.is_sequence(Sequence::Kind::list) && among(list_changes)) return MethodKind::changing;
  const Methods* methods = methods_of(self);
  if (methods == nullptr || !methods->contains(name)) return MethodKind::none;
  if (name == "copy" && self.is_sequence(Sequence::Kind::tuple)) return MethodKind::none;
  return MethodKind::method;
}

std::optional<std::string> nearest_method(const Value& self, std::string_view name) {
  std::vector<std::string> known;
  if (const Methods* methods = methods_of(self))
    for (const auto& [one, method] : *methods) known.emplace_back(one);
  return nearest(name, known);
}

Value call_method(Machine& machine, const Value& self, std::string_view name, const Given& given) {
  machine.step();
  return methods_of(self)->find(name)->second(machine, self, given);
}

}  // namespace tessera::text::jinja
