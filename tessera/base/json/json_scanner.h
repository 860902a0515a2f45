#pragma once
/// \file
/// base/json/: readers and writers of JSON.
///
/// The common part of the JSON readers (strict: json.cpp, lenient: json_lenient.cpp): the position in the text, error
/// messages that name it, and the grammar of strings and numbers.

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

  /// `what`: the kind of text for messages, a file or one line of a file. `line`: number of its first line.
  JsonScanner(std::string_view text, std::shared_ptr<const std::string> file, int line, const char* what)
      : text_(text), file_(std::move(file)), what_(what), line_(line) {}

  /// Throws InputError at the first character that is not well-formed UTF-8.
  void require_utf8();
  /// Lines are counted as the reader passes them; the column is the distance from the line's start.
  SourcePos here() const { return {file_, line_, static_cast<int>(at_ - line_begin_) + 1}; }
  /// "FILE:LINE:COLUMN: WHAT, found 'x'".
  [[noreturn]] void fail(const std::string& what) const;
  /// Throws InputError if two members have the same name; the message has both positions.
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
  /// Skips blanks, tabs and line ends.
  void skip_blanks();

  /// Reads a string that starts here and is delimited by `quote`; returns its value.
  std::string parse_string(char quote = '"');
  /// Parses a number by RFC 8259; integers that do not fit int64 become real.
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
