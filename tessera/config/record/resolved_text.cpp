#include <tessera/config/record/resolved_text.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>

#include <string_view>

namespace tessera::config {
namespace {

[[noreturn]] void refuse() {
  throw InputError("the configuration passed to the ranks was not written by this build of tessera");
}

/// Stores a value as it is, since a default may be outside the range that the rule allows.
struct Put {
  const std::string& text;

  void operator()(std::string& place) const { place = text; }
  void operator()(std::int64_t& place) const { store(place, parse_int(text)); }
  void operator()(double& place) const { store(place, parse_real(text)); }
  void operator()(bool& place) const { store(place, parse_bool(text)); }
  void operator()(WordSlot place) const { store(*place.value, place.words->find(text)); }

  template <class T>
  static void store(T& place, const std::optional<T>& value) {
    if (!value) refuse();
    place = *value;
  }
};

/// "5:hello": values may contain any bytes (a path is not always UTF-8, which JSON requires).
std::string packed(const std::string& text) { return concat(text.size(), ":", text); }

std::string unpack(std::string_view& rest) {
  const std::size_t colon = rest.find(':');
  const auto size = colon == std::string_view::npos ? std::nullopt : parse_int(rest.substr(0, colon));
  if (!size || *size < 0 || static_cast<std::size_t>(*size) > rest.size() - colon - 1) refuse();
  const std::string text(rest.substr(colon + 1, static_cast<std::size_t>(*size)));
  rest.remove_prefix(colon + 1 + text.size());
  return text;
}

Origin unpack_origin(std::string_view& rest) {
  const std::vector<std::string> numbers = split(unpack(rest), ' ');
  if (numbers.size() != 3) refuse();
  const auto number = [&](std::size_t i) { return static_cast<int>(parse_int(numbers[i]).value_or(0)); };
  Origin origin{static_cast<Origin::Kind>(number(0)), unpack(rest), unpack(rest), number(1), number(2)};
  if (origin.kind > Origin::Kind::program) refuse();
  return origin;
}

}  // namespace

std::string resolved_to_text(const Resolved& resolved) {
  std::string text;
  for (const Field& field : fields()) {
    const Value value = field.get(resolved.values);
    text += packed(value.is_string() ? value.as_string() : dump_json(value, -1));
    const Origin& origin = resolved.origin(field.name);
    text += packed(concat(static_cast<int>(origin.kind), " ", origin.line, " ", origin.column));
    text += packed(origin.name) + packed(origin.file);
  }
  for (const std::string& note : resolved.notes) text += packed(note);
  return text;
}

Resolved resolved_from_text(std::string_view text) {
  Resolved resolved;
  for (const Field& field : fields()) {
    const std::string value = unpack(text);
    std::visit([&](auto place) { Put{value}(place(resolved.values)); }, field.access);
    if (Origin origin = unpack_origin(text); !origin.is_default())
      resolved.origins[std::string(field.name)] = std::move(origin);
  }
  while (!text.empty()) resolved.notes.push_back(unpack(text));
  return resolved;
}

}  // namespace tessera::config
