#include <tessera/text/jinja/print.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdio>

#include <tessera/text/jinja/characters.h>
#include <tessera/text/jinja/objects.h>
#include <tessera/text/unicode/utf8.h>

namespace tessera::text::jinja {
namespace {

void append_hex(std::string& out, const char* prefix, std::uint32_t value, int digits) {
  char text[16];
  std::snprintf(text, sizeof text, "%s%0*x", prefix, digits, static_cast<unsigned>(value));
  out += text;
}

void append_quoted(std::string& out, std::string_view text) {
  const char quote = text.find('\'') != std::string_view::npos && text.find('"') == std::string_view::npos ? '"' : '\'';
  out += quote;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint point = code_point_at(text, at);
    const std::string_view character = text.substr(at, point.size);
    at += point.size;
    if (point.value == static_cast<unsigned char>(quote) || point.value == '\\')
      (out += '\\') += character;
    else if (point.value == '\n')
      out += "\\n";
    else if (point.value == '\r')
      out += "\\r";
    else if (point.value == '\t')
      out += "\\t";
    else if (is_printable(point.value))
      out += character;
    else if (point.value < 0x100)
      append_hex(out, "\\x", point.value, 2);
    else if (point.value < 0x10000)
      append_hex(out, "\\u", point.value, 4);
    else
      append_hex(out, "\\U", point.value, 8);
  }
  out += quote;
}

void append_items(Machine& machine, std::string& out, const Values& items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(machine, out, items[i]);
  }
}

void append_members(Machine& machine, std::string& out, const Members& members) {
  out += '{';
  for (std::size_t i = 0; i < members.size(); ++i) {
    if (i > 0) out += ", ";
    append_repr(machine, out, members[i].first);
    out += ": ";
    append_repr(machine, out, members[i].second);
  }
  out += '}';
}

void append_sequence(Machine& machine, std::string& out, const Value& value) {
  const Sequence& sequence = value.sequence();
  switch (sequence.kind) {
    case Sequence::Kind::list:
      out += '[';
      append_items(machine, out, sequence.items);
      out += ']';
      return;
    case Sequence::Kind::tuple:
      out += '(';
      append_items(machine, out, sequence.items);
      out += sequence.items.size() == 1 ? ",)" : ")";
      return;
    case Sequence::Kind::keys:
    case Sequence::Kind::values:
    case Sequence::Kind::items:
      out += type_name(value) + "([";
      append_items(machine, out, sequence.items);
      out += "])";
      return;
    case Sequence::Kind::range:
    case Sequence::Kind::iterator:
      if (!sequence.shown.empty()) {
        out += sequence.shown;
        return;
      }
      fail("a ", type_name(value), " cannot be printed: add |list to print its items");
  }
}

void append_object(Machine& machine, std::string& out, Object& object) {
  auto* space = dynamic_cast<Namespace*>(&object);
  if (space == nullptr) fail("a ", object.type(), " cannot be printed");
  const Machine::Level level(machine);  // a namespace may contain itself
  out += "<Namespace ";
  append_members(machine, out, space->members);
  out += '>';
}

class JsonWriter {
 public:
  JsonWriter(Machine& machine, const JsonStyle& style) : machine_(machine), style_(style) {}

  std::string write(const Value& value) {
    append(value, 0);
    machine_.charge(out_.size() - charged_);
    return std::move(out_);
  }

 private:
  void append(const Value& value, int level) {
    machine_.step();
    machine_.charge(out_.size() - charged_);
    charged_ = out_.size();
    switch (value.kind()) {
      case Value::Kind::none:
        out_ += "null";
        return;
      case Value::Kind::boolean:
        out_ += value.boolean() ? "true" : "false";
        return;
      case Value::Kind::integer:
        out_ += std::to_string(value.integer());
        return;
      case Value::Kind::real:
        out_ += real(value.real());
        return;
      case Value::Kind::string:
        append_text(value.string());
        return;
      case Value::Kind::dict:
        return append_object(value.dict().members, level);
      case Value::Kind::sequence:
        if (value.is_sequence(Sequence::Kind::list) || value.is_sequence(Sequence::Kind::tuple))
          return append_array(value.sequence().items, level);
        break;
      case Value::Kind::undefined:
      case Value::Kind::object:
        break;
    }
    fail("a value of type ", type_name(value), " cannot be written as JSON",
         value.is_undefined() ? concat(": ", value.why()) : "");
  }

  static std::string real(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return real_repr(value);
  }

  void new_line(int level) {
    if (!style_.indent) return;
    machine_.charge(static_cast<std::size_t>(level), style_.indent->size());
    out_ += '\n';
    for (int i = 0; i < level; ++i) out_ += *style_.indent;
  }

  void append_array(const Values& items, int level) {
    out_ += '[';
    for (std::size_t i = 0; i < items.size(); ++i) {
      if (i > 0) out_ += style_.between_items;
      new_line(level + 1);
      append(items[i], level + 1);
    }
    if (!items.empty()) new_line(level);
    out_ += ']';
  }

  static std::string key_text(const Value& key) {
    switch (key.kind()) {
      case Value::Kind::none:
        return "null";
      case Value::Kind::boolean:
        return key.boolean() ? "true" : "false";
      case Value::Kind::integer:
        return std::to_string(key.integer());
      case Value::Kind::real:
        return real(key.real());
      case Value::Kind::string:
        return key.string();
      default:
        fail("a key of type ", type_name(key), " cannot be written as JSON");
    }
  }

  void append_object(const Members& members, int level) {
    std::vector<const Members::value_type*> order;
    for (const auto& member : members) order.push_back(&member);
    if (style_.sort_keys)
      std::stable_sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
        if (!a->first.is_string() || !b->first.is_string()) fail("sort_keys requires all keys to be strings");
        return a->first.string() < b->first.string();
      });
    out_ += '{';
    for (std::size_t i = 0; i < order.size(); ++i) {
      if (i > 0) out_ += style_.between_items;
      new_line(level + 1);
      append_text(key_text(order[i]->first));
      out_ += style_.after_key;
      append(order[i]->second, level + 1);
    }
    if (!members.empty()) new_line(level);
    out_ += '}';
  }

  void append_text(std::string_view text) {
    out_ += '"';
    for (std::size_t at = 0; at < text.size();) {
      const CodePoint point = code_point_at(text, at);
      append_character(point.value, text.substr(at, point.size));
      at += point.size;
    }
    out_ += '"';
  }

  void append_character(std::uint32_t code, std::string_view bytes) {
    constexpr std::string_view special = "\"\\\n\r\t\f\b", letters = "\"\\nrtfb";
    if (const std::size_t known = code < 0x80 ? special.find(bytes) : std::string_view::npos;
        known != std::string_view::npos) {
      (out_ += '\\') += letters[known];
    } else if (code < 0x20 || (style_.ascii && code >= 0x7F && code < 0x10000)) {
      append_hex(out_, "\\u", code, 4);
    } else if (style_.ascii && code >= 0x10000) {  // a surrogate pair
      append_hex(out_, "\\u", 0xD800 + ((code - 0x10000) >> 10), 4);
      append_hex(out_, "\\u", 0xDC00 + ((code - 0x10000) & 0x3FF), 4);
    } else {
      out_ += bytes;
    }
  }

  Machine& machine_;
  const JsonStyle& style_;
  std::string out_;
  std::size_t charged_ = 0;
};

}  // namespace

void append_str(Machine& machine, std::string& out, const Value& value) {
  if (value.is_string()) {
    machine.step();
    machine.charge(value.string().size());
    out += value.string();
  } else if (!value.is_undefined()) {
    append_repr(machine, out, value);
  }
}

void append_repr(Machine& machine, std::string& out, const Value& value) {
  machine.step();
  switch (value.kind()) {
    case Value::Kind::undefined:
      out += "Undefined";
      break;
    case Value::Kind::none:
      out += "None";
      break;
    case Value::Kind::boolean:
      out += value.boolean() ? "True" : "False";
      break;
    case Value::Kind::integer:
      out += std::to_string(value.integer());
      break;
    case Value::Kind::real:
      out += real_repr(value.real());
      break;
    case Value::Kind::string:
      machine.charge(value.string().size());
      out += value.is_safe() ? "Markup(" : "";
      append_quoted(out, value.string());
      out += value.is_safe() ? ")" : "";
      break;
    case Value::Kind::sequence:
      append_sequence(machine, out, value);
      break;
    case Value::Kind::dict:
      append_members(machine, out, value.dict().members);
      break;
    case Value::Kind::object:
      append_object(machine, out, value.object());
      break;
  }
}

std::string to_str(Machine& machine, const Value& value) {
  std::string out;
  append_str(machine, out, value);
  return out;
}

std::string to_repr(Machine& machine, const Value& value) {
  std::string out;
  append_repr(machine, out, value);
  return out;
}

std::string real_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value, std::chars_format::scientific).ptr;
  const std::string scientific(text, end);  // -d.ddde+XX
  const std::size_t e = scientific.find('e');
  const int exponent = std::stoi(scientific.substr(e + 1));
  if (exponent < -4 || exponent >= 16) return scientific;
  const auto fixed = std::to_chars(text, text + sizeof text, value, std::chars_format::fixed).ptr;
  std::string out(text, fixed);
  if (out.find('.') == std::string::npos) out += ".0";
  return out;
}

std::string to_json(Machine& machine, const Value& value, const JsonStyle& style) {
  return JsonWriter(machine, style).write(value);
}

}  // namespace tessera::text::jinja
