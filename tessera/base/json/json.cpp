// Strict JSON (RFC 8259) with positions: reader and writer.

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/json/json_line.h>
#include <tessera/base/json/json_scanner.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>

#include <cmath>

namespace tessera {
namespace {

class Parser : JsonScanner {
 public:
  Parser(std::string_view text, std::shared_ptr<const std::string> file, int line, int column, const char* what)
      : JsonScanner(text, std::move(file), line, what) {
    line_begin_ -= static_cast<std::size_t>(column - 1);  // wraps around, as does the difference that becomes a column
  }

  Value parse() {
    require_utf8();
    Value value = parse_value(0);
    skip_blanks();
    if (at_ != text_.size()) fail(concat("expected the end of the ", what_, " after the value"));
    return value;
  }

 private:
  Value parse_value(int depth) {
    skip_blanks();
    if (depth > max_depth) fail(concat("nested deeper than ", max_depth));
    SourcePos where = here();
    Value value = parse_bare(depth);
    value.set_where(std::move(where));
    return value;
  }

  Value parse_bare(int depth) {
    if (at_ >= text_.size()) fail("expected a value");
    switch (text_[at_]) {
      case '{':
        return parse_object(depth);
      case '[':
        return parse_array(depth);
      case '"':
        return Value::of(parse_string());
      case 't':
        return parse_word("true", Value::of(true));
      case 'f':
        return parse_word("false", Value::of(false));
      case 'n':
        return parse_word("null", Value());
      default:
        return parse_number();
    }
  }

  Value parse_word(std::string_view word, Value value) {
    if (text_.substr(at_, word.size()) != word) fail("expected a value");
    at_ += word.size();
    return value;
  }

  Value parse_array(int depth) {
    ++at_;
    std::vector<Value> items;
    skip_blanks();
    if (take(']')) return Value::make_array();
    for (;;) {
      items.push_back(parse_value(depth + 1));
      skip_blanks();
      if (take(']')) return Value::make_array(std::move(items));
      if (!take(',')) fail("expected ',' or ']' in an array");
    }
  }

  Value parse_object(int depth) {
    ++at_;
    std::vector<Value::Member> members;
    skip_blanks();
    if (take('}')) return Value::make_object();
    for (;;) {
      skip_blanks();
      if (at_ >= text_.size() || text_[at_] != '"') fail("expected a key in double quotes");
      const SourcePos key_place = here();
      std::string key = parse_string();
      skip_blanks();
      if (!take(':')) fail(concat("expected ':' after the key \"", key, "\""));
      members.emplace_back(std::move(key), at_key(parse_value(depth + 1), key_place));
      skip_blanks();
      if (take('}')) break;
      if (!take(',')) fail("expected ',' or '}' in an object");
    }
    Value object = Value::make_object(std::move(members));
    require_unique(object);
    return object;
  }
};

void dump_string(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          static constexpr char hex[] = "0123456789abcdef";
          out += "\\u00";
          out += hex[c >> 4];
          out += hex[c & 15];
        } else {
          out += c;
        }
    }
  }
  out += '"';
}

class Writer {
 public:
  Writer(int indent, int real_digits) : indent_(indent), real_digits_(real_digits) {}

  std::string take() { return std::move(out_); }

  void write(const Value& value, int depth) {
    switch (value.kind()) {
      case Value::Kind::null:
        out_ += "null";
        return;
      case Value::Kind::boolean:
        out_ += value.as_bool() ? "true" : "false";
        return;
      case Value::Kind::integer:
        out_ += std::to_string(value.as_int());
        return;
      case Value::Kind::real:
        write_real(value.as_real());
        return;
      case Value::Kind::string:
        dump_string(out_, value.as_string());
        return;
      case Value::Kind::array:
        write_sequence('[', ']', value.items(), depth, [&](const Value& item) { write(item, depth + 1); });
        return;
      case Value::Kind::object:
        write_sequence('{', '}', value.members(), depth, [&](const Value::Member& member) {
          dump_string(out_, member.first);
          out_ += indent_ < 0 ? ":" : ": ";
          write(member.second, depth + 1);
        });
        return;
    }
  }

 private:
  /// A real remains a real when read back: 1.0, not 1.
  void write_real(double value) {
    if (!std::isfinite(value)) {
      out_ += "null";
      return;
    }
    const std::string text = format_real(value, real_digits_);
    out_ += text;
    if (text.find_first_of(".e") == std::string::npos) out_ += ".0";
  }

  template <class Items, class WriteItem>
  void write_sequence(char open, char close, const Items& items, int depth, WriteItem write_item) {
    out_ += open;
    bool first = true;
    for (const auto& item : items) {
      if (!first) out_ += ',';
      first = false;
      new_line(depth + 1);
      write_item(item);
    }
    if (!first) new_line(depth);
    out_ += close;
  }

  void new_line(int depth) {
    if (indent_ < 0) return;
    out_ += '\n';
    out_.append(static_cast<std::size_t>(depth * indent_), ' ');
  }

  int indent_, real_digits_;
  std::string out_;
};

}  // namespace

Value parse_json(std::string_view text, const std::string& name) {
  return Parser(text, std::make_shared<const std::string>(name), 1, 1, "file").parse();
}

Value parse_json_line(std::string_view text, std::shared_ptr<const std::string> file, int line, int column) {
  return Parser(text, std::move(file), line, column, "line").parse();
}

Value read_json(const std::string& path, std::uint64_t max_bytes) {
  const std::string text = read_file(path, max_bytes);
  return parse_json(without_byte_order_mark(text), path);
}

std::string dump_json(const Value& value, int indent, int real_digits) {
  Writer writer(indent, real_digits);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace tessera
