#include <algorithm>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/filters.h>
#include <tessera/text/jinja/operators.h>
#include <tessera/text/jinja/print.h>
#include <tessera/text/jinja/text_functions.h>

namespace tessera::text::jinja {
namespace {

/// The parts of "a.b.0": names, and numbers for items.
Values attribute_path(const Value& attribute) {
  if (!attribute.is_string()) return {attribute};
  Values path;
  for (const std::string_view part : split_text(attribute.string(), ".", -1, false)) {
    const bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
    if (number)
      path.push_back(Value::of(parse_python_integer(part, 10).value_or(0)));
    else
      path.push_back(Value::of(std::string(part)));
  }
  return path;
}

Value at_path(Machine& machine, Value item, const Values& path, const Value* otherwise = nullptr) {
  for (const Value& part : path) {
    item = item_of(machine, item, part);
    if (otherwise != nullptr && item.is_undefined()) item = *otherwise;
  }
  return item;
}

/// The comparison key of sort, min, max and unique: a member of the item; texts in lower case unless requested
/// otherwise.
class Key {
 public:
  Key(Machine& machine, const Value* attribute, bool case_sensitive)
      : machine_(machine), case_sensitive_(case_sensitive) {
    if (attribute != nullptr && !attribute->is_none()) path_ = attribute_path(*attribute);
  }

  Value of(const Value& item) const {
    Value key = at_path(machine_, item, path_);
    if (!case_sensitive_ && key.is_string()) key = machine_.text(to_case(key.string(), Case::lower));
    return key;
  }

 private:
  Machine& machine_;
  Values path_;
  bool case_sensitive_;
};

using Keyed = std::pair<Value, Value>;  // key and item

Value sorted(Machine& machine, std::vector<Keyed> keyed, bool reverse) {
  // Python's reverse keeps the order of equal items, so sort the reversed list and reverse it again.
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  std::stable_sort(keyed.begin(), keyed.end(),
                   [&](const Keyed& a, const Keyed& b) { return less(machine, a.first, b.first); });
  if (reverse) std::reverse(keyed.begin(), keyed.end());
  Values items;
  for (Keyed& one : keyed) items.push_back(std::move(one.second));
  return machine.list(std::move(items));
}

Value sort_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("sort", given, {"reverse", "case_sensitive", "attribute"});
  std::vector<std::string> attributes;
  if (bound[2] != nullptr && bound[2]->is_string())
    for (const std::string_view name : split_text(bound[2]->string(), ",", -1, false)) attributes.emplace_back(name);
  std::vector<Keyed> keyed;
  for (Value& item : items_of(machine, input)) {
    Values keys;
    if (attributes.empty()) keys.push_back(Key(machine, bound[2], bound.truth_of(1, false)).of(item));
    for (const std::string& name : attributes) {
      const Value attribute = Value::of(name);
      keys.push_back(Key(machine, &attribute, bound.truth_of(1, false)).of(item));
    }
    keyed.emplace_back(machine.list(std::move(keys)), std::move(item));
  }
  return sorted(machine, std::move(keyed), bound.truth_of(0, false));
}

Value dictsort_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("dictsort", given, {"case_sensitive", "by", "reverse"});
  const std::string by = bound[1] == nullptr ? "key" : bound.string_of(1);
  if (by != "key" && by != "value") fail("dictsort: 'by' must be \"key\" or \"value\"");
  if (input.is_undefined()) fail(input.why());
  if (!input.is_dict()) fail("dictsort takes a dict, not a ", type_name(input));
  const Key key(machine, nullptr, bound.truth_of(0, false));
  std::vector<Keyed> keyed;
  for (const auto& [name, value] : input.dict().members)
    keyed.emplace_back(key.of(by == "key" ? name : value), machine.list({name, value}, Sequence::Kind::tuple));
  return sorted(machine, std::move(keyed), bound.truth_of(2, false));
}

template <bool greatest>
Value extreme_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound(greatest ? "max" : "min", given, {"case_sensitive", "attribute"});
  const Key key(machine, bound[1], bound.truth_of(0, false));
  std::optional<Keyed> best;
  for (Value& item : items_of(machine, input)) {
    Value own = key.of(item);
    if (!best || (greatest ? less(machine, best->first, own) : less(machine, own, best->first)))
      best = Keyed(std::move(own), std::move(item));
  }
  return best ? best->second : Value::undefined("an empty sequence has no minimum or maximum");
}

Value unique_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("unique", given, {"case_sensitive", "attribute"});
  const Key key(machine, bound[1], bound.truth_of(0, false));
  Values seen, items;
  for (Value& item : items_of(machine, input)) {
    Value own = key.of(item);
    if (!is_hashable(own)) fail("unique: a ", type_name(own), " is not hashable");
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& other) { return equal(machine, own, other); })) continue;
    seen.push_back(std::move(own));
    items.push_back(std::move(item));
  }
  return machine.list(std::move(items), Sequence::Kind::iterator);
}

Value length_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("length", given, {});
  return Value::of(length(machine, input));
}

Value list_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("list", given, {});
  return machine.list(items_of(machine, input));
}

Value first_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("first", given, {});
  if (input.is_sequence(Sequence::Kind::iterator)) {
    const Sequence& iterator = input.sequence();
    if (iterator.taken < iterator.items.size()) return iterator.items[iterator.taken++];
    return Value::undefined("an empty sequence has no first item");
  }
  const Values items = items_of(machine, input);
  return items.empty() ? Value::undefined("an empty sequence has no first item") : items.front();
}

Value last_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("last", given, {});
  if (input.is_sequence(Sequence::Kind::iterator)) fail("last takes a list, not a generator: add |list before it");
  const Values items = items_of(machine, input);
  return items.empty() ? Value::undefined("an empty sequence has no last item") : items.back();
}

Value reverse_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("reverse", given, {});
  Values items = items_of(machine, input);
  std::reverse(items.begin(), items.end());
  if (!input.is_string()) {
    const auto kind = input.is_sequence(Sequence::Kind::iterator) ? Sequence::Kind::list : Sequence::Kind::iterator;
    return machine.list(std::move(items), kind);
  }
  std::string out;
  for (const Value& item : items) out += item.string();
  return machine.text(std::move(out));
}

Value join_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("join", given, {"d", "attribute"});
  const std::string between = bound[0] == nullptr ? "" : to_str(machine, *bound[0]);
  Values path;
  if (bound[1] != nullptr && !bound[1]->is_none()) path = attribute_path(*bound[1]);
  std::string out;
  bool begun = false;
  for (const Value& item : items_of(machine, input)) {
    machine.charge(between.size());
    if (std::exchange(begun, true)) out += between;
    append_str(machine, out, path.empty() ? item : at_path(machine, item, path));
  }
  return machine.text(std::move(out));
}

Value items_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("items", given, {});
  Values items;
  if (!input.is_undefined() && !input.is_dict()) fail("items takes a dict, not a ", type_name(input));
  if (input.is_dict())
    for (const auto& [key, value] : input.dict().members)
      items.push_back(machine.list({key, value}, Sequence::Kind::tuple));
  return machine.list(std::move(items), Sequence::Kind::iterator);
}

Value sum_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("sum", given, {"attribute", "start"});
  Values path;
  if (bound[0] != nullptr && !bound[0]->is_none()) path = attribute_path(*bound[0]);
  Value total = bound[1] == nullptr ? Value::of(0) : *bound[1];
  if (total.is_string()) fail("sum cannot add strings: use join");
  for (const Value& item : items_of(machine, input))
    total = apply(machine, Binary::Op::add, total, path.empty() ? item : at_path(machine, item, path));
  return total;
}

Value map_filter(Machine& machine, const Value& input, const Given& given) {
  Values items;
  const auto named = [&](std::string_view name) -> const Value* {
    for (const auto& [key, value] : given.named)
      if (key == name) return &value;
    return nullptr;
  };
  if (!truth(input)) return machine.list({}, Sequence::Kind::iterator);
  if (given.plain.empty() && named("attribute") != nullptr) {
    const Bound bound("map", given, {"attribute", "default"}, 1);
    const Values path = attribute_path(*bound[0]);
    const Value* otherwise = bound[1] != nullptr && bound[1]->is_none() ? nullptr : bound[1];
    for (const Value& item : items_of(machine, input)) items.push_back(at_path(machine, item, path, otherwise));
    return machine.list(std::move(items), Sequence::Kind::iterator);
  }
  if (given.plain.empty() || !given.plain[0].is_string()) fail("map takes the name of a filter, or attribute=");
  const std::string name = given.plain[0].string();
  const Given rest{Values(given.plain.begin() + 1, given.plain.end()), given.named};
  for (const Value& item : items_of(machine, input)) items.push_back(apply_filter(machine, name, item, rest));
  return machine.list(std::move(items), Sequence::Kind::iterator);
}

/// The filters select, reject, selectattr and rejectattr.
template <bool keeps, bool by_attribute>
Value select_filter(Machine& machine, const Value& input, const Given& given) {
  constexpr std::size_t test = by_attribute ? 1 : 0;
  if (!truth(input)) return machine.list({}, Sequence::Kind::iterator);
  if (given.plain.size() < test) fail("selectattr and rejectattr take the name of an attribute");
  const Values path = by_attribute ? attribute_path(given.plain[0]) : Values{};
  std::string name;
  Given rest;
  if (given.plain.size() > test) {
    if (!given.plain[test].is_string()) fail("the name of a test must be a str");
    name = given.plain[test].string();
    rest.plain.assign(given.plain.begin() + test + 1, given.plain.end());
    rest.named = given.named;
  }
  Values items;
  for (Value& item : items_of(machine, input)) {
    const Value looked_at = at_path(machine, item, path);
    const bool holds = name.empty() ? truth(looked_at) : apply_test(machine, name, looked_at, rest);
    if (holds == keeps) items.push_back(std::move(item));
  }
  return machine.list(std::move(items), Sequence::Kind::iterator);
}

Value attr_filter(Machine& machine, const Value& input, const Given& given) {
  const Bound bound("attr", given, {"name"}, 1);
  if (input.is_undefined()) fail(input.why());
  if (auto own = own_attribute(machine, input, bound.string_of(0))) return *own;
  return Value::undefined(concat("the ", type_name(input), " has no attribute '", bound.string_of(0), "'"));
}

}  // namespace

const FilterTable& sequence_filters() {
  static const FilterTable table = {{"sort", sort_filter},
                                    {"dictsort", dictsort_filter},
                                    {"min", extreme_filter<false>},
                                    {"max", extreme_filter<true>},
                                    {"unique", unique_filter},
                                    {"length", length_filter},
                                    {"count", length_filter},
                                    {"list", list_filter},
                                    {"first", first_filter},
                                    {"last", last_filter},
                                    {"reverse", reverse_filter},
                                    {"join", join_filter},
                                    {"items", items_filter},
                                    {"sum", sum_filter},
                                    {"map", map_filter},
                                    {"select", select_filter<true, false>},
                                    {"reject", select_filter<false, false>},
                                    {"selectattr", select_filter<true, true>},
                                    {"rejectattr", select_filter<false, true>},
                                    {"attr", attr_filter}};
  return table;
}

}  // namespace tessera::text::jinja
