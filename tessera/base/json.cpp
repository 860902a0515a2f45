// Strict JSON (RFC 8259) with positions: reader and writer.

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/json_line.h>
#include <tessera/base/utf8.h>
#include <tessera/base/value.h>

#include <algorithm>
#include <charconv>
#include <cmath>

namespace tessera {
namespace {

constexpr int max_depth = 256;

class Parser {
 public:
  /// `what` the text is: a file, or a line of one.
  Parser(std::string_view text, std::shared_ptr<const std::string> file, int line, const char* what)
      : text_(text), file_(std::move(file)), what_(what), line_(line) {}

  Value parse() {
    if (!is_utf8(text_)) {
      find_ill_formed();
      throw InputError(concat(here().str(), ": not valid UTF-8"));
    }
    Value value = parse_value(0);
    skip_blanks();
    if (at_ != text_.size()) fail(concat("expected the end of the ", what_, " after the value"));
    return value;
  }

 private:
  /// Lines are counted as the reader passes them; the column is the distance from the line's start.
  SourcePos here() const { return {file_, line_, static_cast<int>(at_ - line_begin_) + 1}; }

  /// Moves to the first character that is not well-formed UTF-8.
  void find_ill_formed() {
    while (at_ < text_.size()) {
      const auto first = static_cast<unsigned char>(text_[at_]);
      const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
      if (!is_utf8(text_.substr(at_, size))) return;
      at_ += size;
      if (first != '\n') continue;
      ++line_;
      line_begin_ = at_;
    }
  }

  [[noreturn]] void fail(const std::string& what) const {
    std::string found = concat("the end of the ", what_);
    if (at_ < text_.size()) {
      std::size_t end = at_ + 1;  // a whole character of UTF-8
      while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) ++end;
      const auto byte = static_cast<unsigned char>(text_[at_]);
      found = byte < 0x20 ? concat("control character ", static_cast<int>(byte))
                          : concat("'", text_.substr(at_, end - at_), "'");
    }
    throw InputError(concat(here().str(), ": ", what, ", found ", found));
  }

  void skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '\n') {
        ++line_;
        line_begin_ = at_ + 1;
      } else if (c != ' ' && c != '\t' && c != '\r') {
        return;
      }
    }
  }

  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

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
      std::string key = parse_string();
      skip_blanks();
      if (!take(':')) fail(concat("expected ':' after the key \"", key, "\""));
      Value value = parse_value(depth + 1);
      members.emplace_back(std::move(key), std::move(value));
      skip_blanks();
      if (take('}')) break;
      if (!take(',')) fail("expected ',' or '}' in an object");
    }
    Value object = Value::make_object(std::move(members));
    if (const auto again = object.duplicate()) {
      const auto& [key, value] = object.members()[*again];
      throw InputError(concat(value.where().str(), ": the key \"", key, "\" appears twice (first at ",
                              object.at(key).where().str(), ")"));
    }
    return object;
  }

  std::string parse_string() {
    const std::size_t begin = at_++;
    std::string out;
    for (;;) {
      const std::size_t plain = at_;
      while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\\' &&
             static_cast<unsigned char>(text_[at_]) >= 0x20)
        ++at_;
      out.append(text_, plain, at_ - plain);
      if (at_ >= text_.size()) {
        at_ = begin;
        throw InputError(concat(here().str(), ": a string that begins here never ends"));
      }
      if (take('"')) return out;
      if (text_[at_] != '\\') fail("control characters in strings must be escaped");
      ++at_;
      parse_escape(out);
    }
  }

  void parse_escape(std::string& out) {
    if (at_ >= text_.size()) fail("expected an escape");
    const char c = text_[at_];
    static constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
    if (const std::size_t i = from.find(c); i != std::string_view::npos) {
      out += to[i];
      ++at_;
      return;
    }
    if (c != 'u') fail("unknown escape in a string");
    ++at_;
    std::uint32_t code = parse_hex4();
    if (code >= 0xDC00 && code <= 0xDFFF) fail("a low surrogate without a high one before it");
    if (code >= 0xD800 && code <= 0xDBFF) {
      if (text_.substr(at_, 2) != "\\u") fail("expected the low surrogate \\uDC00..\\uDFFF");
      at_ += 2;
      const std::uint32_t low = parse_hex4();
      if (low < 0xDC00 || low > 0xDFFF) fail("expected the low surrogate \\uDC00..\\uDFFF");
      code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
    }
    append_utf8(out, code);
  }

  std::uint32_t parse_hex4() {
    std::uint32_t code = 0;
    const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
    if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4)
      fail("expected four hexadecimal digits");
    at_ += 4;
    return code;
  }

  bool digit() const { return at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9'; }
  void digits() {
    if (!digit()) fail("expected a digit");
    while (digit()) ++at_;
  }

  Value parse_number() {
    const std::size_t begin = at_;
    bool real = false;
    take('-');
    if (!digit()) fail("expected a value");
    if (!take('0')) digits();
    if (digit()) fail("a number may not begin with 0");
    if (take('.')) {
      real = true;
      digits();
    }
    if (take('e') || take('E')) {
      real = true;
      if (!take('+')) take('-');
      digits();
    }
    const std::string_view text = text_.substr(begin, at_ - begin);
    if (!real) {
      std::int64_t integer = 0;
      if (std::from_chars(text.data(), text.data() + text.size(), integer).ec == std::errc()) return Value::of(integer);
    }
    double value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc()) {
      at_ = begin;
      fail("a number beyond the range of double");
    }
    return Value::of(value);
  }

  std::string_view text_;
  std::shared_ptr<const std::string> file_;
  const char* what_;
  std::size_t at_ = 0;
  int line_;
  std::size_t line_begin_ = 0;
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
  /// A real stays a real when it is read back: 1.0, not 1.
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
  return Parser(text, std::make_shared<const std::string>(name), 1, "file").parse();
}

Value parse_json_line(std::string_view text, std::shared_ptr<const std::string> file, int line) {
  return Parser(text, std::move(file), line, "line").parse();
}

Value read_json(const std::string& path, std::uint64_t max_bytes) {
  return parse_json(read_file(path, max_bytes), path);
}

std::string dump_json(const Value& value, int indent, int real_digits) {
  Writer writer(indent, real_digits);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace tessera
