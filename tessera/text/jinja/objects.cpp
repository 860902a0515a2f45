#include <tessera/text/jinja/objects.h>

#include <algorithm>

namespace tessera::text::jinja {

Bound::Bound(std::string_view function, const Given& given, std::initializer_list<std::string_view> parameters,
             std::size_t required)
    : function_(function), values_(parameters.size(), nullptr), names_(parameters) {
  if (given.plain.size() > names_.size())
    fail(function, " takes at most ", names_.size(), " arguments, but ", given.plain.size(), " are given");
  for (std::size_t i = 0; i < given.plain.size(); ++i) values_[i] = &given.plain[i];
  for (const auto& [name, value] : given.named) {
    const auto found = std::find(names_.begin(), names_.end(), name);
    if (found == names_.end()) fail(function, " has no parameter '", name, "'");
    const Value*& place = values_[static_cast<std::size_t>(found - names_.begin())];
    if (place != nullptr) fail(function, ": the argument '", name, "' is given twice");
    place = &value;
  }
  for (std::size_t i = 0; i < required; ++i)
    if (values_[i] == nullptr) fail(function, ": the argument '", names_[i], "' is missing");
}

bool Bound::truth_of(std::size_t i, bool otherwise) const {
  return values_[i] == nullptr ? otherwise : truth(*values_[i]);
}

std::int64_t Bound::integer_of(std::size_t i, std::int64_t otherwise) const {
  const Value* value = values_[i];
  if (value == nullptr) return otherwise;
  if (value->is_undefined()) fail(value->why());
  if (!value->is_integer()) fail(function_, ": '", names_[i], "' is a ", type_name(*value), ", must be an integer");
  return value->integer();
}

const std::string& Bound::string_of(std::size_t i) const {
  const Value* value = values_[i];
  if (value == nullptr) fail(function_, ": the argument '", names_[i], "' is missing");
  if (!value->is_string()) fail(function_, ": '", names_[i], "' is a ", type_name(*value), ", must be a string");
  return value->string();
}

std::optional<Value> Namespace::attribute(Machine& machine, std::string_view name) {
  machine.step();
  for (const auto& [key, value] : members)
    if (key.is_string() && key.string() == name) return value;
  return std::nullopt;
}

void Namespace::set(Machine& machine, std::string_view name, Value value) {
  if (name.starts_with('_')) fail("a namespace's attribute cannot begin with an underscore: '", name, "'");
  machine.step(1 + members.size() / 8);
  for (auto& [key, known] : members)
    if (key.is_string() && key.string() == name) {
      known = std::move(value);
      return;
    }
  machine.charge(2 * sizeof(Value));
  members.emplace_back(Value::of(std::string(name)), std::move(value));
}

}  // namespace tessera::text::jinja
