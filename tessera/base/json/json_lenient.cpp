// HJSON with positions.

#include <tessera/base/json/json_lenient.h>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/json/json_scanner.h>
#include <tessera/base/text.h>

#include <algorithm>
#include <tuple>

namespace tessera {
namespace {

constexpr int max_values = 10000;  // a configuration has hundreds

bool is_punctuation(char c) { return c == '{' || c == '}' || c == '[' || c == ']' || c == ',' || c == ':'; }

/// -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?
bool is_number(std::string_view text) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && text[at] >= '0' && text[at] <= '9') ++at;
    return at > begin;
  };
  const auto take = [&](std::string_view any) {
    if (at >= text.size() || any.find(text[at]) == std::string_view::npos) return false;
    ++at;
    return true;
  };
  take("-");
  const bool zero = at < text.size() && text[at] == '0';
  const std::size_t begin = at;
  if (!digits() || (zero && at > begin + 1)) return false;
  if (take(".") && !digits()) return false;
  if (take("eE")) {
    take("+-");
    if (!digits()) return false;
  }
  return at == text.size();
}

class LenientParser : JsonScanner {
 public:
  LenientParser(std::string_view text, const std::string& name)
      : JsonScanner(text, std::make_shared<const std::string>(name), 1, "file") {}

  Value parse() {
    require_utf8();
    if (text_.starts_with(byte_order_mark)) at_ = line_begin_ = byte_order_mark.size();
    skip();
    Value value = begins_with_key() ? placed([&] { return parse_members(0, false); }) : parse_value(0);
    skip();
    if (!at_end()) fail("expected the end of the file after the value");
    return value;
  }

 private:
  bool at(std::string_view what) const { return text_.substr(at_, what.size()) == what; }

  /// Skips blanks and comments.
  void skip() {
    for (;;) {
      skip_blanks();
      if (at("#") || at("//")) {
        while (!at_end() && text_[at_] != '\n') ++at_;
      } else if (at("/*")) {
        skip_block();
      } else {
        return;
      }
    }
  }

  void skip_block() {
    const SourcePos begin = here();
    for (at_ += 2; !at("*/");) {
      if (at_end()) throw InputError(concat(begin.str(), ": a comment that begins here never ends"));
      if (text_[at_] == '\n') {
        pass_line_end();
      } else {
        ++at_;
      }
    }
    at_ += 2;
  }

  template <class Parse>
  Value placed(const Parse& parse) {
    SourcePos where = here();
    Value value = parse();
    value.set_where(std::move(where));
    return value;
  }

  /// Whether the text begins with a key, i.e. the root has no braces.
  bool begins_with_key() {
    if (at_end() || is_punctuation(text_[at_])) return false;
    const auto [at, line, line_begin] = std::tuple(at_, line_, line_begin_);
    parse_key();
    skip();
    const bool found = at_ < text_.size() && text_[at_] == ':';
    at_ = at, line_ = line, line_begin_ = line_begin;
    return found;
  }

  Value parse_value(int depth) {
    if (depth > max_depth) fail(concat("nested deeper than ", max_depth));
    if (++values_ > max_values) fail(concat("more than ", max_values, " values"));
    return placed([&] { return parse_bare(depth); });
  }

  Value parse_bare(int depth) {
    if (at_end()) fail("expected a value");
    if (take('{')) return parse_members(depth, true);
    if (take('[')) return parse_items(depth);
    if (at("'''")) return Value::of(parse_lines());
    if (text_[at_] == '"' || text_[at_] == '\'') return Value::of(parse_string(text_[at_]));
    if (is_punctuation(text_[at_])) fail("expected a value");
    return parse_unquoted();
  }

  /// Returns the position of the bracket just read.
  SourcePos before() const {
    SourcePos place = here();
    --place.column;
    return place;
  }

  /// Consumes a comma or a line end after a value; `line` is where the value ended.
  bool separated(int line) {
    skip();
    if (!take(',')) return line_ != line;
    skip();
    return true;
  }

  [[noreturn]] static void never_ends(const SourcePos& begin, const char* what) {
    throw InputError(
        concat(begin.str(), ": ", what, " that begins here never ends (unquoted text extends to the end of its line)"));
  }

  Value parse_items(int depth) {
    const SourcePos begin = before();
    std::vector<Value> items;
    for (bool more = true;;) {
      skip();
      if (at_end()) never_ends(begin, "an array");
      if (take(']')) return Value::make_array(std::move(items));
      if (!more) fail("expected ',', ']' or a new line in an array");
      items.push_back(parse_value(depth + 1));
      more = separated(line_);
    }
  }

  /// `braced`: up to the closing brace; otherwise up to the end of the text.
  Value parse_members(int depth, bool braced) {
    const SourcePos begin = before();
    std::vector<Value::Member> members;
    for (bool more = true;;) {
      skip();
      if (at_end() && braced) never_ends(begin, "an object");
      if (braced ? take('}') : at_end()) break;
      if (!more) fail("expected ',', '}' or a new line in an object");
      const SourcePos key_place = here();
      std::string key = parse_key();
      skip();
      if (!take(':')) fail(concat("expected ':' after the key \"", key, "\""));
      skip();
      members.emplace_back(std::move(key), at_key(parse_value(depth + 1), key_place));
      more = separated(line_);
    }
    Value object = Value::make_object(std::move(members));
    require_unique(object);
    return object;
  }

  std::string parse_key() {
    if (at_end()) fail("expected a key");
    if (text_[at_] == '"' || text_[at_] == '\'') return parse_string(text_[at_]);
    const std::size_t begin = at_;
    while (!at_end() && !is_punctuation(text_[at_]) && static_cast<unsigned char>(text_[at_]) > ' ') ++at_;
    if (at_ == begin) fail("expected a key");
    return std::string(text_.substr(begin, at_ - begin));
  }

  /// Whether an unquoted number, true, false or null may end before text_[i].
  bool ends_word(std::size_t i) const {
    const char c = text_[i];
    return c == ',' || c == '}' || c == ']' || c == '#' ||
           (c == '/' && i + 1 < text_.size() && (text_[i + 1] == '/' || text_[i + 1] == '*'));
  }

  Value parse_unquoted() {
    const SourcePos where = here();
    const std::size_t begin = at_;
    std::size_t end = begin;
    while (end < text_.size() && text_[end] != '\n' && !ends_word(end)) ++end;
    const std::string word = trim(text_.substr(begin, end - begin));
    if (is_number(word)) {
      Value number = parse_number();
      at_ = end;
      return number;
    }
    at_ = end;
    const bool ends_here = end < text_.size() && (text_[end] == ',' || text_[end] == '}' || text_[end] == ']');
    if (ends_here && (word == "True" || word == "False" || word == "None" || to_lower(word) == "nan"))
      throw InputError(
          concat(where.str(), ": ", word, " is Python syntax; JSON accepts numbers, true, false and null"));
    if (word == "true") return Value::of(true);
    if (word == "false") return Value::of(false);
    if (word == "null") return {};
    at_ = std::min(text_.find('\n', at_), text_.size());
    return Value::of(trim(text_.substr(begin, at_ - begin)));
  }

  /// '''...''': a line end right after the opening and one before the closing quotes do not count.
  std::string parse_lines() {
    const SourcePos begin = here();
    at_ += 3;
    std::size_t blank = at_;
    while (blank < text_.size() && (text_[blank] == ' ' || text_[blank] == '\t' || text_[blank] == '\r')) ++blank;
    if (blank < text_.size() && text_[blank] == '\n') {
      at_ = blank;
      pass_line_end();
      skip_indentation(begin.column - 1);
    }
    std::string out;
    while (!at("'''")) {
      if (at_end()) throw InputError(concat(begin.str(), ": a string that begins here never ends"));
      const char c = text_[at_];
      if (c != '\r') out += c;
      if (c == '\n') {
        pass_line_end();
        skip_indentation(begin.column - 1);
      } else {
        ++at_;
      }
    }
    at_ += 3;
    if (out.ends_with('\n')) out.pop_back();
    return out;
  }

  void skip_indentation(int columns) {
    for (; columns > 0 && !at_end() && (text_[at_] == ' ' || text_[at_] == '\t'); --columns) ++at_;
  }

  int values_ = 0;
};

}  // namespace

Value parse_hjson(std::string_view text, const std::string& name) { return LenientParser(text, name).parse(); }

}  // namespace tessera
