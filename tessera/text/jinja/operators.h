#pragma once
/// \file
/// The operations on values (operators, subscripts, loops) with Python's semantics. All throw Fault where Python raises
/// an exception (including ZeroDivisionError), and for operations not allowed on an undefined value.

#include <optional>
#include <string_view>

#include <tessera/text/jinja/machine.h>
#include <tessera/text/jinja/tree.h>

namespace tessera::text::jinja {

bool equal(Machine& machine, const Value& a, const Value& b);
bool less(Machine& machine, const Value& a, const Value& b);
bool compare(Machine& machine, Comparison::Op op, const Value& a, const Value& b);
bool contains(Machine& machine, const Value& container, const Value& item);
/// Whether Python could hash it; needed for dict keys and unique().
bool is_hashable(const Value& value);

/// All binary operators except `and` and `or`.
Value apply(Machine& machine, Binary::Op op, const Value& a, const Value& b);
Value negate(const Value& value);
Value plus(const Value& value);

/// len()
std::size_t length(Machine& machine, const Value& value);
/// The items that a loop iterates over: a string's characters, a dict's keys. Exhausts an iterator.
Values items_of(Machine& machine, const Value& value);

/// object[index]: a member or an item, otherwise an attribute; undefined if it has neither.
Value item_of(Machine& machine, const Value& object, const Value& index);
/// object.name: an attribute (method), otherwise a member.
Value attribute_of(Machine& machine, const Value& object, std::string_view name);
/// A method, or an object's own attribute.
std::optional<Value> own_attribute(Machine& machine, const Value& object, std::string_view name);
/// object[first:last:step]; nullptr or none: omitted.
Value slice_of(Machine& machine, const Value& object, const Value* first, const Value* last, const Value* step);

const Value* find_member(Machine& machine, const Members& members, const Value& key);
/// Adds a member, or replaces the one with this key. The key must be hashable.
void set_member(Machine& machine, Members& members, Value key, Value value);

}  // namespace tessera::text::jinja
