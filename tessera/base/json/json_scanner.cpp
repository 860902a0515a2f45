// The common part of the JSON readers.

#include <tessera/base/json/json_scanner.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/base/utf8.h>

#include <algorithm>
#include <charconv>

namespace tessera {

void JsonScanner::require_utf8() {
  if (is_utf8(text_)) return;
  while (at_ < text_.size()) {
    const auto first = static_cast<unsigned char>(text_[at_]);
    const std::size_t size = first < 0x80 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
    if (!is_utf8(text_.substr(at_, size))) break;
    if (first == '\n') {
      pass_line_end();
    } else {
      at_ += size;
    }
  }
  throw InputError(concat(here().str(), ": not valid UTF-8"));
}

void JsonScanner::fail(const std::string& what) const {
  std::string found = concat("the end of the ", what_);
  if (at_ < text_.size()) {
    std::size_t end = at_ + 1;  // a whole UTF-8 character
    while (end < text_.size() && (static_cast<unsigned char>(text_[end]) & 0xC0) == 0x80) ++end;
    const auto byte = static_cast<unsigned char>(text_[at_]);
    found = byte < 0x20 ? concat("control character ", static_cast<int>(byte))
                        : concat("'", text_.substr(at_, end - at_), "'");
  }
  throw InputError(concat(here().str(), ": ", what, ", found ", found));
}

void JsonScanner::require_unique(const Value& object) {
  if (const auto again = object.duplicate()) {
    const auto& [key, value] = object.members()[*again];
    throw InputError(concat(value.where().str(), ": the key \"", key, "\" appears twice (first at ",
                            object.at(key).where().str(), "); keep one of them"));
  }
}

void JsonScanner::skip_blanks() {
  while (!at_end()) {
    const char c = text_[at_];
    if (c == '\n') {
      pass_line_end();
    } else if (c == ' ' || c == '\t' || c == '\r') {
      ++at_;
    } else {
      return;
    }
  }
}

std::string JsonScanner::parse_string(char quote) {
  const std::size_t begin = at_++;
  std::string out;
  for (;;) {
    const std::size_t plain = at_;
    while (at_ < text_.size() && text_[at_] != quote && text_[at_] != '\\' &&
           static_cast<unsigned char>(text_[at_]) >= 0x20)
      ++at_;
    out.append(text_, plain, at_ - plain);
    if (at_ >= text_.size()) {
      at_ = begin;
      throw InputError(concat(here().str(), ": a string that begins here never ends"));
    }
    if (take(quote)) return out;
    if (text_[at_] != '\\') fail("control characters in strings must be escaped");
    ++at_;
    parse_escape(out, quote);
  }
}

void JsonScanner::parse_escape(std::string& out, char quote) {
  if (at_ >= text_.size()) fail("expected an escape");
  const char c = text_[at_];
  static constexpr std::string_view from = "\"\\/bfnrt", to = "\"\\/\b\f\n\r\t";
  if (const std::size_t i = from.find(c); i != std::string_view::npos) {
    out += to[i];
    ++at_;
    return;
  }
  if (c == quote && take(quote)) {
    out += quote;
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

std::uint32_t JsonScanner::parse_hex4() {
  std::uint32_t code = 0;
  const std::string_view digits = text_.substr(std::min(at_, text_.size()), 4);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
  if (digits.size() != 4 || error != std::errc() || end != digits.data() + 4) fail("expected four hexadecimal digits");
  at_ += 4;
  return code;
}

void JsonScanner::digits() {
  if (!digit()) fail("expected a digit");
  while (digit()) ++at_;
}

Value JsonScanner::parse_number() {
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

}  // namespace tessera
