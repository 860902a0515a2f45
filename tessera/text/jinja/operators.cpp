#include <tessera/text/jinja/operators.h>

#include <algorithm>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/methods.h>
#include <tessera/text/jinja/objects.h>
#include <tessera/text/jinja/print.h>
#include <tessera/text/jinja/text_functions.h>

namespace tessera::text::jinja {
namespace {

bool equal_items(Machine& machine, const Values& a, const Values& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (!equal(machine, a[i], b[i])) return false;
  return true;
}

bool equal_members(Machine& machine, const Members& a, const Members& b) {
  if (a.size() != b.size()) return false;
  for (const auto& [key, value] : a) {
    const Value* other = find_member(machine, b, key);
    if (other == nullptr || !equal(machine, value, *other)) return false;
  }
  return true;
}

const char* symbol(Comparison::Op op) {
  switch (op) {
    case Comparison::Op::less:
      return "<";
    case Comparison::Op::less_equal:
      return "<=";
    case Comparison::Op::greater:
      return ">";
    case Comparison::Op::greater_equal:
      return ">=";
    default:
      return "?";
  }
}

template <class T>
bool in_order(Comparison::Op op, const T& a, const T& b) {
  switch (op) {
    case Comparison::Op::less:
      return a < b;
    case Comparison::Op::less_equal:
      return a <= b;
    case Comparison::Op::greater:
      return a > b;
    default:
      return a >= b;
  }
}

/// <, <=, > and >=.
bool ordered(Machine& machine, Comparison::Op op, const Value& a, const Value& b) {
  machine.step();
  for (const Value* value : {&a, &b})
    if (value->is_undefined()) fail(value->why());
  if (a.is_integer() && b.is_integer()) return in_order(op, a.integer(), b.integer());
  if (a.is_number() && b.is_number()) return in_order(op, a.real(), b.real());
  if (a.is_string() && b.is_string()) return in_order(op, a.string(), b.string());  // the same order as by code points
  if (a.is_sequence() && b.is_sequence() && a.sequence().kind == b.sequence().kind &&
      (a.is_sequence(Sequence::Kind::list) || a.is_sequence(Sequence::Kind::tuple))) {
    const Values &left = a.sequence().items, &right = b.sequence().items;
    for (std::size_t i = 0; i < std::min(left.size(), right.size()); ++i)
      if (!equal(machine, left[i], right[i])) return ordered(machine, op, left[i], right[i]);
    return in_order(op, left.size(), right.size());
  }
  fail("'", symbol(op), "' is not supported between a ", type_name(a), " and a ", type_name(b));
}

/// Resolves a Python index; nullopt if it is out of range.
std::optional<std::size_t> place_of(std::int64_t index, std::size_t size) {
  const auto count = static_cast<std::int64_t>(size);
  if (index < 0) index += count;
  if (index < 0 || index >= count) return std::nullopt;
  return static_cast<std::size_t>(index);
}

Value missing(Machine& machine, const Value& object, const Value& index) {
  if (index.is_string())
    return Value::undefined(concat("the ", type_name(object), " has no attribute '", index.string(), "'"));
  return Value::undefined(concat("the ", type_name(object), " has no element ", to_repr(machine, index)));
}

struct Bounds {
  std::int64_t first, last, step;
};

/// Like Python's slice.indices().
Bounds bounds_of(std::size_t size, const Value* first, const Value* last, const Value* step) {
  const auto count = static_cast<std::int64_t>(size);
  const auto given = [](const Value* value) -> std::optional<std::int64_t> {
    if (value == nullptr || value->is_none()) return std::nullopt;
    if (value->is_undefined()) fail(value->why());
    if (!value->is_integer()) fail("a slice bound is a ", type_name(*value), ", must be an integer");
    return value->integer();
  };
  const std::int64_t by = given(step).value_or(1);
  if (by == 0) fail("the step of a slice is 0");
  const std::int64_t least = by < 0 ? -1 : 0, most = by < 0 ? count - 1 : count;
  const auto clamped = [&](std::optional<std::int64_t> value, std::int64_t otherwise) {
    if (!value) return otherwise;
    if (*value < 0) return *value < -count ? least : std::max(*value + count, least);
    return std::min(*value, most);
  };
  return {clamped(given(first), by < 0 ? most : 0), clamped(given(last), by < 0 ? -1 : count), by};
}

template <class Take>
void for_each_in(const Bounds& bounds, Take take) {
  if (bounds.step > 0) {
    for (std::int64_t i = bounds.first; i < bounds.last;) {
      take(static_cast<std::size_t>(i));
      if (bounds.step > bounds.last - i) break;
      i += bounds.step;
    }
  } else {
    for (std::int64_t i = bounds.first; i > bounds.last;) {
      take(static_cast<std::size_t>(i));
      if (bounds.step < bounds.last - i) break;
      i += bounds.step;
    }
  }
}

}  // namespace

bool equal(Machine& machine, const Value& a, const Value& b) {
  machine.step();
  if (a.is_number() && b.is_number())
    return a.is_integer() && b.is_integer() ? a.integer() == b.integer() : a.real() == b.real();
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Value::Kind::undefined:
    case Value::Kind::none:
      return true;
    case Value::Kind::string:
      return a.string() == b.string();
    case Value::Kind::dict:
      return equal_members(machine, a.dict().members, b.dict().members);
    case Value::Kind::sequence:
      if (a.sequence().kind != b.sequence().kind) return false;
      if (a.is_sequence(Sequence::Kind::iterator) || a.is_sequence(Sequence::Kind::values)) return a.same(b);
      return equal_items(machine, a.sequence().items, b.sequence().items);
    default:
      return a.same(b);
  }
}

bool less(Machine& machine, const Value& a, const Value& b) { return ordered(machine, Comparison::Op::less, a, b); }

bool compare(Machine& machine, Comparison::Op op, const Value& a, const Value& b) {
  switch (op) {
    case Comparison::Op::equal:
      return equal(machine, a, b);
    case Comparison::Op::unequal:
      return !equal(machine, a, b);
    case Comparison::Op::in:
      return contains(machine, b, a);
    case Comparison::Op::not_in:
      return !contains(machine, b, a);
    default:
      return ordered(machine, op, a, b);
  }
}

bool contains(Machine& machine, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) fail("'in' searches a str for a ", type_name(item), ", must be a str");
    machine.step(1 + container.string().size() / 64);
    return container.string().find(item.string()) != std::string::npos;
  }
  if (container.is_dict()) {
    if (!is_hashable(item)) fail("a ", type_name(item), " cannot be a dict key");
    return find_member(machine, container.dict().members, item) != nullptr;
  }
  if (container.is_undefined()) return false;
  if (!container.is_sequence()) fail("'in' is applied to a ", type_name(container), ", which has no items");
  if (container.is_sequence(Sequence::Kind::iterator)) {
    const Sequence& iterator = container.sequence();
    while (iterator.taken < iterator.items.size())
      if (equal(machine, iterator.items[iterator.taken++], item)) return true;
    return false;
  }
  return std::any_of(container.sequence().items.begin(), container.sequence().items.end(),
                     [&](const Value& one) { return equal(machine, one, item); });
}

bool is_hashable(const Value& value) {
  if (value.is_dict()) return false;
  if (!value.is_sequence()) return true;
  if (value.is_sequence(Sequence::Kind::tuple))
    return std::all_of(value.sequence().items.begin(), value.sequence().items.end(), is_hashable);
  return value.is_sequence(Sequence::Kind::range) || value.is_sequence(Sequence::Kind::iterator);
}

std::size_t length(Machine& machine, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
      return 0;
    case Value::Kind::string:
      machine.step(1 + value.string().size() / 64);
      return character_count(value.string());
    case Value::Kind::dict:
      return value.dict().members.size();
    case Value::Kind::sequence:
      if (!value.is_sequence(Sequence::Kind::iterator)) return value.sequence().items.size();
      break;
    default:
      break;
  }
  fail("a ", type_name(value), " has no length");
}

Values items_of(Machine& machine, const Value& value) {
  switch (value.kind()) {
    case Value::Kind::undefined:
      return {};
    case Value::Kind::string: {
      Values characters;
      machine.charge(value.string().size(), sizeof(Value));
      machine.step(value.string().size());
      for (const std::string_view character : characters_of(value.string()))
        characters.push_back(Value::of(std::string(character)));
      return characters;
    }
    case Value::Kind::dict: {
      Values keys;
      machine.charge(value.dict().members.size(), sizeof(Value));
      for (const auto& [key, member] : value.dict().members) keys.push_back(key);
      return keys;
    }
    case Value::Kind::sequence: {
      const Sequence& sequence = value.sequence();
      machine.charge(sequence.items.size() - sequence.taken, sizeof(Value));
      Values items(sequence.items.begin() + static_cast<std::ptrdiff_t>(sequence.taken), sequence.items.end());
      if (sequence.kind == Sequence::Kind::iterator) sequence.taken = sequence.items.size();
      return items;
    }
    default:
      fail("a ", type_name(value), " cannot be iterated over");
  }
}

Value item_of(Machine& machine, const Value& object, const Value& index) {
  machine.step();
  if (object.is_undefined()) fail(object.why());
  if (object.is_dict() && is_hashable(index)) {
    if (const Value* member = find_member(machine, object.dict().members, index)) return *member;
  } else if (object.is_string() && index.is_integer()) {
    const auto place = place_of(index.integer(), character_count(object.string()));
    if (place) return machine.text(std::string(character_at(object.string(), *place)));
  } else if (index.is_integer() && object.is_sequence() &&
             (object.is_sequence(Sequence::Kind::list) || object.is_sequence(Sequence::Kind::tuple) ||
              object.is_sequence(Sequence::Kind::range))) {
    const auto place = place_of(index.integer(), object.sequence().items.size());
    if (place) return object.sequence().items[*place];
  }
  if (index.is_string())
    if (auto own = own_attribute(machine, object, index.string())) return *own;
  return missing(machine, object, index);
}

Value attribute_of(Machine& machine, const Value& object, std::string_view name) {
  machine.step();
  if (object.is_undefined()) fail(object.why());
  if (auto own = own_attribute(machine, object, name)) return *own;
  if (object.is_dict())
    if (const Value* member = object.member(name)) return *member;
  return Value::undefined(concat("the ", type_name(object), " has no attribute '", name, "'"));
}

std::optional<Value> own_attribute(Machine& machine, const Value& object, std::string_view name) {
  if (object.is(Value::Kind::object)) {
    auto* attributes = dynamic_cast<Attributes*>(&object.object());
    return attributes == nullptr ? std::nullopt : attributes->attribute(machine, name);
  }
  switch (method_kind(object, name)) {
    case MethodKind::none:
      return std::nullopt;
    case MethodKind::method:
      return Value::of(machine.make<BoundMethod>(object, std::string(name)));
    case MethodKind::changing:
      return Value::undefined(concat("the method '", name, "' of a ", type_name(object),
                                     " would change it, which templates cannot (use + or a namespace)"));
  }
  return std::nullopt;
}

Value slice_of(Machine& machine, const Value& object, const Value* first, const Value* last, const Value* step) {
  machine.step();
  if (object.is_undefined()) fail(object.why());
  if (object.is_string()) {
    machine.charge(object.string().size(), sizeof(std::string_view));
    const auto characters = characters_of(object.string());
    std::string out;
    for_each_in(bounds_of(characters.size(), first, last, step), [&](std::size_t i) { out += characters[i]; });
    return machine.text(std::move(out));
  }
  if (!object.is_sequence() || object.is_sequence(Sequence::Kind::iterator) ||
      object.is_sequence(Sequence::Kind::keys) || object.is_sequence(Sequence::Kind::values) ||
      object.is_sequence(Sequence::Kind::items))
    fail("a ", type_name(object), " cannot be sliced");
  Values items;
  machine.charge(object.sequence().items.size(), sizeof(Value));
  for_each_in(bounds_of(object.sequence().items.size(), first, last, step),
              [&](std::size_t i) { items.push_back(object.sequence().items[i]); });
  return machine.list(std::move(items), object.sequence().kind);
}

const Value* find_member(Machine& machine, const Members& members, const Value& key) {
  machine.step(1 + members.size() / 8);
  if (key.is_string()) {
    for (const auto& [name, value] : members)
      if (name.is_string() && name.string() == key.string()) return &value;
    return nullptr;
  }
  for (const auto& [name, value] : members)
    if (equal(machine, name, key)) return &value;
  return nullptr;
}

void set_member(Machine& machine, Members& members, Value key, Value value) {
  if (!is_hashable(key)) fail("a ", type_name(key), " cannot be a dict key");
  if (const Value* known = find_member(machine, members, key)) {
    const auto is_known = [known](const auto& member) { return &member.second == known; };
    std::find_if(members.begin(), members.end(), is_known)->second = std::move(value);
    return;
  }
  members.emplace_back(std::move(key), std::move(value));
}

}  // namespace tessera::text::jinja
