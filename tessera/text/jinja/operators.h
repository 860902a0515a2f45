#pragma once
/// \file
/// What can be done with values by operators, subscripts and loops, as Python does it. All throw Fault where Python
/// throws (also ZeroDivisionError and the like), and for what an undefined value cannot do.

#include <optional>
#include <string_view>

#include <tessera/text/jinja/machine.h>
#include <tessera/text/jinja/tree.h>

namespace tessera::text::jinja {

bool equal(Machine& machine, const Value& a, const Value& b);
bool less(Machine& machine, const Value& a, const Value& b);
bool compare(Machine& machine, Comparison::Op op, const Value& a, const Value& b);
bool contains(Machine& machine, const Value& container, const Value& item);
/// Whether Python could hash it: dict keys, unique().
bool is_hashable(const Value& value);

/// All but `and` and `or`.
Value apply(Machine& machine, Binary::Op op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

/// len()
std::size_t length(Machine& machine, const Value& value);
/// The items that a loop goes through: of a string the characters, of a dict the keys. Empties an iterator.
Values items_of(Machine& machine, const Value& value);

/// object[index]: a member, an item, else an attribute; undefined where nothing is there.
Value item_of(Machine& machine, const Value& object, const Value& index);
/// object.name: an attribute (method), else a member.
Value attribute_of(Machine& machine, const Value& object, std::string_view name);
/// A method, or another thing's own attribute.
std::optional<Value> own_attribute(Machine& machine, const Value& object, std::string_view name);
/// object[first:last:step]; nullptr or none: left out.
Value slice_of(Machine& machine, const Value& object, const Value* first, const Value* last, const Value* step);

const Value* find_member(Machine& machine, const Members& members, const Value& key);
/// Adds a member, or replaces the one with this key. The key must be hashable.
void set_member(Machine& machine, Members& members, Value key, Value value);

}  // namespace tessera::text::jinja
