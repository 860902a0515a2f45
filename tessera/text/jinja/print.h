#pragma once
/// \file
/// Converts values to text: Python's str() and repr(), and JSON as json.dumps writes it.

#include <optional>
#include <string>

#include <tessera/text/jinja/machine.h>

namespace tessera::text::jinja {

// All of these throw Fault if a value has no reproducible text (a generator, a function) or its text is too long.
void append_str(Machine& machine, std::string& out, const Value& value);
void append_repr(Machine& machine, std::string& out, const Value& value);
std::string to_str(Machine& machine, const Value& value);
std::string to_repr(Machine& machine, const Value& value);

/// repr(float): the fewest digits that read back as the same number.
std::string real_repr(double value);

/// Arguments of json.dumps.
struct JsonStyle {
  bool ascii = false;  ///< escapes all non-ASCII characters
  std::optional<std::string> indent;
  std::string between_items = ", ", after_key = ": ";
  bool sort_keys = false;
};
/// Throws Fault for values that JSON cannot represent.
std::string to_json(Machine& machine, const Value& value, const JsonStyle& style);

}  // namespace tessera::text::jinja
