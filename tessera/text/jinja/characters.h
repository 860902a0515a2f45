#pragma once
/// \file
/// Characters as in Python's str. Text is well-formed UTF-8; positions in it are in bytes.

#include <cstdint>
#include <string>
#include <string_view>

namespace tessera::text::jinja {

inline bool is_digit(char c) { return c >= '0' && c <= '9'; }

/// Bytes of the character at text[at]; 0 at the end.
std::size_t character_size(std::string_view text, std::size_t at);
/// Bytes of the white space character at text[at] (str.isspace), or 0.
std::size_t space_at(std::string_view text, std::size_t at);
/// Bytes of the character that ends at text[end]; 0 at the beginning.
std::size_t size_before(std::string_view text, std::size_t end);

/// Removes white space at one end.
std::string_view strip_left(std::string_view text);
std::string_view strip_right(std::string_view text);

/// str.isprintable of one character, i.e. whether repr() prints it unescaped.
bool is_printable(std::uint32_t code);

enum class Case { lower, upper, title };
/// Converts one character's case, which may yield several characters. A sigma at the end of a word becomes the ordinary
/// lower-case sigma (Python uses the final form).
void append_case(std::string& out, std::uint32_t code, Case wanted);
std::string to_case(std::string_view text, Case wanted);
/// str.capitalize(): the first character in title case, the others in lower case.
std::string capitalized(std::string_view text);

}  // namespace tessera::text::jinja
