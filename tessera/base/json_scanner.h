#pragma once
/// \file
/// What the readers of JSON (strict: json.cpp, lenient: json_lenient.cpp) share: the place in the text, complaints that
/// name it, and the grammar of strings and numbers.

#include <tessera/base/key_place.h>
#include <tessera/base/value.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace tessera {

class JsonScanner {
 protected:
  static constexpr int max_depth = 256;

  /// `what` the text is: a file, or a line of one. `line`: the number of its first.
  JsonScanner(std::string_view text, std::shared_ptr<const std::string> file, int line, const char* what)
      : text_(text), file_(std::move(file)), what_(what), line_(line) {}

  /// Throws InputError at the first character that is not well-formed UTF-8.
  void require_utf8();
  /// Lines are counted as the reader passes them; the column is the distance from the line's start.
  SourcePos here() const { return {file_, line_, static_cast<int>(at_ - line_begin_) + 1}; }
  /// "FILE:LINE:COLUMN: WHAT, found 'x'".
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws InputError when a member has an earlier one's name, with both places.
  static void require_unique(const Value& object);

  bool at_end() const { return at_ >= text_.size(); }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void pass_line_end() {
    ++at_;
    ++line_;
    line_begin_ = at_;
  }
  /// Blanks, tabs, ends of lines.
  void skip_blanks();

  /// Reads a string that begins and ends here with `quote`, and returns its value.
  std::string parse_string(char quote = '"');
  /// RFC 8259's numbers; integers that do not fit int64 become real.
  Value parse_number();

  std::string_view text_;
  std::shared_ptr<const std::string> file_;
  const char* what_;
  std::size_t at_ = 0;
  int line_;
  std::size_t line_begin_ = 0;

 private:
  void parse_escape(std::string& out, char quote);
  std::uint32_t parse_hex4();
  bool digit() const { return !at_end() && text_[at_] >= '0' && text_[at_] <= '9'; }
  void digits();
};

}  // namespace tessera
