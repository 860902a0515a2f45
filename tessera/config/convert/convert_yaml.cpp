#include <tessera/base/text.h>
#include <tessera/config/convert/convert.h>

#include <algorithm>
#include <cctype>

namespace tessera::config {
namespace {

/// Whether a YAML 1.1 or 1.2 reader would parse the plain text as anything other than text.
bool needs_quotes(const std::string& text) {
  if (text.empty() || text != trim(text)) return true;
  static constexpr std::string_view words[] = {"~",   "null", "true", "false", "yes",  "no",    "on",
                                               "off", "y",    "n",    ".nan",  ".inf", "-.inf", "="};
  const std::string lower = to_lower(text);
  if (std::find(std::begin(words), std::end(words), lower) != std::end(words)) return true;
  // possible numbers, dates and sexagesimals (1:30): everything that starts like one
  const unsigned char first = static_cast<unsigned char>(text[0]);
  if (std::isdigit(first) || ((first == '+' || first == '-' || first == '.') && text.size() > 1)) return true;
  if (std::string_view("-?:,[]{}#&*!|>'\"%@`<").find(text[0]) != std::string_view::npos) return true;
  if (text.find(": ") != std::string::npos || text.find(" #") != std::string::npos || text.back() == ':') return true;
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::string scalar(const Value& value) {
  switch (value.kind()) {
    case Value::Kind::boolean:
      return value.as_bool() ? "true" : "false";
    case Value::Kind::integer:
      return std::to_string(value.as_int());
    case Value::Kind::real: {
      // YAML 1.1 parses 1e-08 as text: its reals have a point
      std::string text = format_real(value.as_real());
      const std::size_t exponent = text.find('e');
      if (text.find('.') == std::string::npos && text.find_first_of("ni") == std::string::npos)
        text.insert(exponent == std::string::npos ? text.size() : exponent, ".0");
      if (const std::size_t e = text.find('e'); e != std::string::npos && text[e + 1] != '-' && text[e + 1] != '+')
        text.insert(e + 1, "+");
      return text;
    }
    case Value::Kind::string: {
      const std::string& text = value.as_string();
      if (!needs_quotes(text)) return text;
      const bool control = std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
      if (control) return dump_json(value, -1);  // a JSON string is a double-quoted YAML string
      std::string out = "'";
      for (const char c : text) out += c == '\'' ? std::string("''") : std::string(1, c);
      return out + "'";
    }
    default:
      return "null";
  }
}

void dump(const Value& value, std::string& out, std::size_t indent);

/// Writes a value after "key:" or "-".
void dump_behind(const Value& value, std::string& out, std::size_t indent) {
  if (value.is_object() && !value.members().empty()) {
    out += '\n';
    dump(value, out, indent + 2);
  } else if (value.is_array() && !value.items().empty()) {
    out += '\n';
    dump(value, out, indent);
  } else if (value.is_object() || value.is_array()) {
    out += value.is_object() ? " {}\n" : " []\n";
  } else {
    out += ' ' + scalar(value) + '\n';
  }
}

void dump(const Value& value, std::string& out, std::size_t indent) {
  const std::string margin(indent, ' ');
  if (value.is_object()) {
    for (const auto& [key, member] : value.members()) {
      out += margin + scalar(Value::of(key)) + ':';
      dump_behind(member, out, indent);
    }
  } else if (value.is_array()) {
    for (const Value& item : value.items()) {
      out += margin + '-';
      const bool inner = (item.is_array() && !item.items().empty()) || (item.is_object() && !item.members().empty());
      if (inner) {
        out += '\n';
        dump(item, out, indent + 2);
      } else {
        dump_behind(item, out, indent);
      }
    }
  }
}

}  // namespace

std::string dump_yaml(const Value& value) {
  if (!value.is_object() && !value.is_array()) return scalar(value) + "\n";
  if (value.is_object() ? value.members().empty() : value.items().empty()) return value.is_object() ? "{}\n" : "[]\n";
  std::string out;
  dump(value, out, 0);
  return out;
}

}  // namespace tessera::config
