#include <tessera/text/jinja/lexer.h>

#include <algorithm>
#include <array>

#include <tessera/base/error.h>
#include <tessera/base/utf8.h>
#include <tessera/text/jinja/characters.h>

namespace tessera::text::jinja {
namespace {

bool is_word(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || (c & '\x80') != 0;
}

/// Value of a digit in the given base, or -1.
int digit_value(char c, int base) {
  int value = 99;
  if (is_digit(c)) value = c - '0';
  if (c >= 'a' && c <= 'f') value = c - 'a' + 10;
  if (c >= 'A' && c <= 'F') value = c - 'A' + 10;
  return value < base ? value : -1;
}

std::string line_feeds(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\r') {
      out += text[i];
      continue;
    }
    out += '\n';
    if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(const Source& source) : source_(source), text_(source.text()) {}

  std::vector<Token> read() {
    while (at_ < text_.size()) read_data();
    add(Token::Kind::end, at_);
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail_at(std::size_t offset, const std::string& why) const {
    throw InputError(concat(source_.place(offset), ": ", why));
  }

  bool starts(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  void skip_spaces() {
    while (const std::size_t size = space_at(text_, at_)) at_ += size;
  }

  Token& add(Token::Kind kind, std::size_t offset, std::string text = {}) {
    tokens_.push_back({kind, offset, std::move(text), 0, 0});
    return tokens_.back();
  }

  /// Adds the text from `begin` to `end`, the start of a tag with the given sign.
  void add_data(std::size_t begin, std::size_t end, char sign, bool block) {
    std::string_view data = text_.substr(begin, end - begin);
    if (sign == '-') {
      data = strip_right(data);
    } else if (sign != '+' && block) {
      const std::size_t feed = data.rfind('\n');
      const std::size_t line = feed == std::string_view::npos ? 0 : feed + 1;
      const bool at_line_start = line > 0 || begin == 0 || text_[begin - 1] == '\n';
      if (at_line_start && strip_right(data.substr(line)).empty()) data = data.substr(0, line);
    }
    if (!data.empty()) add(Token::Kind::data, begin, std::string(data));
  }

  /// Consumes '-' or '+' after the two characters that begin a tag.
  char take_sign() {
    if (at_ < text_.size() && (text_[at_] == '-' || text_[at_] == '+')) return text_[at_++];
    return 0;
  }

  /// Reads the text up to the next tag, and the tag itself.
  void read_data() {
    const std::size_t begin = at_;
    std::size_t tag = begin;
    while (true) {
      tag = text_.find('{', tag);
      if (tag == std::string_view::npos || tag + 1 == text_.size()) {
        add(Token::Kind::data, begin, std::string(text_.substr(begin)));
        at_ = text_.size();
        return;
      }
      if (text_[tag + 1] == '{' || text_[tag + 1] == '%' || text_[tag + 1] == '#') break;
      ++tag;
    }
    const char type = text_[tag + 1];
    at_ = tag + 2;
    const char sign = take_sign();
    add_data(begin, tag, sign, type != '{');
    if (type == '#')
      skip_comment(tag);
    else if (type == '{')
      read_tag(tag, /*block=*/false);
    else if (!read_raw(tag))
      read_tag(tag, /*block=*/true);
  }

  /// Trims the text after a comment or a block, according to its sign.
  void trim_after(char sign) {
    if (sign == '-')
      skip_spaces();
    else if (sign != '+' && at_ < text_.size() && text_[at_] == '\n')
      ++at_;
  }

  void skip_comment(std::size_t tag) {
    const std::size_t end = text_.find("#}", at_);
    if (end == std::string_view::npos) fail_at(tag, "the comment that begins here has no closing '#}'");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    at_ = end + 2;
    trim_after(sign);
  }

  /// Consumes `[sign] %}` and the white space that it removes; consumes nothing if the tag does not end here.
  bool take_block_end(bool trim_line) {
    const std::size_t begin = at_;
    const char sign = take_sign();
    if (!starts("%}") || (sign == '+' && !trim_line)) {
      at_ = begin;
      return false;
    }
    at_ += 2;
    if (sign == '-' || trim_line) trim_after(sign);
    return true;
  }

  /// After `{%` and its sign: returns whether this is a raw block, and if so consumes it.
  bool read_raw(std::size_t tag) {
    const std::size_t begin = at_;
    skip_spaces();
    if (starts("raw")) {
      at_ += 3;
      skip_spaces();
      if (take_block_end(/*trim_line=*/false)) {
        take_raw_text(tag);
        return true;
      }
    }
    at_ = begin;
    return false;
  }

  void take_raw_text(std::size_t tag) {
    const std::size_t begin = at_;
    for (std::size_t end = text_.find("{%", begin); end != std::string_view::npos; end = text_.find("{%", end + 1)) {
      at_ = end + 2;
      const char sign = take_sign();
      skip_spaces();
      if (!starts("endraw")) continue;
      at_ += 6;
      skip_spaces();
      if (!take_block_end(/*trim_line=*/true)) continue;
      add_data(begin, end, sign, /*block=*/true);
      return;
    }
    fail_at(tag, "the raw block that begins here has no closing '{% endraw %}'");
  }

  void read_tag(std::size_t tag, bool block) {
    add(block ? Token::Kind::block_begin : Token::Kind::variable_begin, tag);
    std::vector<char> open;  // open brackets, as their closing counterparts
    while (true) {
      skip_spaces();
      if (at_ >= text_.size())
        fail_at(tag, concat("the tag that begins here has no closing '", block ? "%}" : "}}", "'"));
      const std::size_t begin = at_;
      if (open.empty() && (block ? take_block_end(/*trim_line=*/true) : take_variable_end())) {
        add(block ? Token::Kind::block_end : Token::Kind::variable_end, begin);
        return;
      }
      read_token(open);
    }
  }

  bool take_variable_end() {
    if (starts("-}}")) {
      at_ += 3;
      skip_spaces();
      return true;
    }
    if (!starts("}}")) return false;
    at_ += 2;
    return true;
  }

  void read_token(std::vector<char>& open) {
    const char c = text_[at_];
    if (is_digit(c)) return read_number();
    if (is_word(c)) return read_name();
    if (c == '\'' || c == '"') return read_string();
    read_operator(open);
  }

  void read_name() {
    const std::size_t begin = at_;
    while (at_ < text_.size() && is_word(text_[at_]) && space_at(text_, at_) == 0) ++at_;
    add(Token::Kind::name, begin, std::string(text_.substr(begin, at_ - begin)));
  }

  /// Returns the end of the digits that start at `at`, which may be separated by single underscores; returns `at` if
  /// no digit starts there.
  std::size_t digits_end(std::size_t at, int base) const {
    while (at < text_.size()) {
      if (digit_value(text_[at], base) >= 0)
        ++at;
      else if (text_[at] == '_' && at + 1 < text_.size() && digit_value(text_[at + 1], base) >= 0)
        at += 2;
      else
        break;
    }
    return at;
  }

  /// The end of the exponent at `at`; `at` itself without an exponent.
  std::size_t exponent_end(std::size_t at) const {
    if (at >= text_.size() || (text_[at] != 'e' && text_[at] != 'E')) return at;
    std::size_t digits = at + 1;
    if (digits < text_.size() && (text_[digits] == '+' || text_[digits] == '-')) ++digits;
    if (digits >= text_.size() || !is_digit(text_[digits])) return at;
    return digits_end(digits, 10);
  }

  void read_number() {
    const std::size_t begin = at_;
    const bool behind_dot = begin > 0 && text_[begin - 1] == '.';
    const std::size_t whole = digits_end(begin, 10);
    std::size_t end = whole;
    if (!behind_dot) {
      if (end + 1 < text_.size() && text_[end] == '.' && is_digit(text_[end + 1])) end = digits_end(end + 1, 10);
      end = exponent_end(end);
    }
    if (end > whole) return add_real(begin, end);
    int base = 10;
    if (text_[begin] == '0' && begin + 2 < text_.size()) {
      const char letter = static_cast<char>(text_[begin + 1] | 0x20);
      const int asked = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
      if (asked != 10 && digits_end(begin + 2, asked) > begin + 2) base = asked;
    }
    add_integer(begin, base == 10 ? whole : digits_end(begin + 2, base), base);
  }

  std::string without_underscores(std::size_t begin, std::size_t end) const {
    std::string digits(text_.substr(begin, end - begin));
    std::erase(digits, '_');
    return digits;
  }

  void add_real(std::size_t begin, std::size_t end) {
    const std::string digits = without_underscores(begin, end);
    const auto value = parse_real(digits);
    if (!value) fail_at(begin, concat("the number ", digits, " is out of range"));
    at_ = end;
    add(Token::Kind::real, begin).real = *value;
  }

  void add_integer(std::size_t begin, std::size_t end, int base) {
    std::int64_t value = 0;
    for (const char c : without_underscores(base == 10 ? begin : begin + 2, end))
      if (__builtin_mul_overflow(value, base, &value) || __builtin_add_overflow(value, digit_value(c, base), &value))
        fail_at(begin, "the number does not fit in 64 bits");
    if (base == 10 && text_[begin] == '0' && value != 0) fail_at(begin, "a number begins with 0");
    at_ = end;
    add(Token::Kind::integer, begin).integer = value;
  }

  void read_string() {
    const std::size_t begin = at_;
    const char quote = text_[at_++];
    std::string value;
    while (at_ < text_.size() && text_[at_] != quote) {
      if (text_[at_] == '\\')
        read_escape(value);
      else
        value += text_[at_++];
    }
    if (at_ >= text_.size()) fail_at(begin, "the string that begins here is not closed");
    ++at_;
    add(Token::Kind::string, begin, std::move(value));
  }

  /// Like Python's codec "unicode-escape"; an unknown escape is kept verbatim.
  void read_escape(std::string& value) {
    const std::size_t begin = at_++;
    if (at_ >= text_.size()) return;
    const char c = text_[at_++];
    constexpr std::string_view letters = "abfnrtv\\'\"", meanings = "\a\b\f\n\r\t\v\\'\"";
    if (const std::size_t known = letters.find(c); known != std::string_view::npos) {
      value += meanings[known];
    } else if (c >= '0' && c <= '7') {
      --at_;
      append_escaped(value, begin, 3, 8, false);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      append_escaped(value, begin, c == 'x' ? 2 : c == 'u' ? 4 : 8, 16, true);
    } else if (c == 'N') {
      fail_at(begin, "named characters (\\N) are not supported: use \\uXXXX");
    } else if (c != '\n') {
      value += '\\';
      value += c;
    }
  }

  void append_escaped(std::string& value, std::size_t begin, int most_digits, int base, bool all) {
    std::uint32_t code = 0;
    int digits = 0;
    for (; digits < most_digits && at_ < text_.size() && digit_value(text_[at_], base) >= 0; ++digits)
      code = code * static_cast<std::uint32_t>(base) + static_cast<std::uint32_t>(digit_value(text_[at_++], base));
    if (all && digits < most_digits) fail_at(begin, concat("the escape needs ", most_digits, " hexadecimal digits"));
    if (code >= 0x110000 || (code >= 0xD800 && code < 0xE000)) fail_at(begin, "the escape is not a Unicode character");
    append_utf8(value, code);
  }

  void read_operator(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 26> operators = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                                                   "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                                                   ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};
    const auto found =
        std::find_if(operators.begin(), operators.end(), [&](std::string_view op) { return starts(op); });
    if (found == operators.end()) {
      const std::size_t size = std::max<std::size_t>(1, character_size(text_, at_));
      fail_at(at_, concat("unexpected character '", text_.substr(at_, size), "'"));
    }
    const char c = found->front();
    if (c == '(' || c == '[' || c == '{') open.push_back(c == '(' ? ')' : c == '[' ? ']' : '}');
    if (c == ')' || c == ']' || c == '}') {
      if (open.empty()) fail_at(at_, concat("unexpected '", c, "'"));
      if (open.back() != c) fail_at(at_, concat("unexpected '", c, "', expected '", open.back(), "'"));
      open.pop_back();
    }
    add(Token::Kind::op, at_, std::string(*found));
    at_ += found->size();
  }

  const Source& source_;
  std::string_view text_;
  std::size_t at_ = 0;
  std::vector<Token> tokens_;
};

}  // namespace

Source::Source(std::string_view text, std::string name) : name_(std::move(name)) {
  if (!is_utf8(text)) throw InputError(concat(name_, ": the template is not UTF-8"));
  text_ = line_feeds(text);
}

std::string Source::place(std::size_t offset) const {
  const std::string_view before = std::string_view(text_).substr(0, offset);
  const auto lines = std::count(before.begin(), before.end(), '\n');
  const std::size_t feed = before.rfind('\n');
  return concat(name_, ":", lines + 1, ":", before.size() - (feed == std::string_view::npos ? 0 : feed + 1) + 1);
}

std::vector<Token> read_tokens(const Source& source) { return Lexer(source).read(); }

}  // namespace tessera::text::jinja
