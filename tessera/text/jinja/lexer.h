#pragma once
/// \file
/// Tokenizes templates as Jinja does with trim_blocks and lstrip_blocks: everything between the tags is text; the line
/// feed after a block tag, and the blanks before a block tag on its line, belong to the tag.
///
/// Language: https://jinja.palletsprojects.com/en/stable/templates/ (Jinja 3.1).

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::text::jinja {

/// A template's text and its name for errors. Line breaks are normalized to line feeds, and the last one is removed.
class Source {
 public:
  /// Throws InputError for text that is not UTF-8.
  Source(std::string_view text, std::string name);

  const std::string& text() const { return text_; }
  /// "chat_template.jinja:12:5", columns in bytes, from 1.
  std::string place(std::size_t offset) const;

 private:
  std::string text_, name_;
};

struct Token {
  enum class Kind { data, block_begin, block_end, variable_begin, variable_end, name, string, integer, real, op, end };

  Kind kind = Kind::end;
  std::size_t offset = 0;    ///< in the source
  std::string text;          ///< text of data, a name, a string's value or an operator
  std::int64_t integer = 0;  ///< an integer's value
  double real = 0;           ///< a real's value
};

/// Splits the source into tokens, resolving comments and raw blocks; the last token is `end`. Throws InputError naming
/// the place.
std::vector<Token> read_tokens(const Source& source);

}  // namespace tessera::text::jinja
