#pragma once
/// \file
/// Letters, numbers and blanks as defined by Hugging Face's regular expressions (characters.txt).

#include <tessera/text/unicode/code_point_table.h>

#include <cstdint>

namespace tessera::text {

enum class CharClass : std::uint8_t { other, letter, number, space };

/// Class of every code point. Immutable.
class CharClasses {
 public:
  /// The process-wide table, built on first use (thread-safe).
  static const CharClasses& get();

  /// code_point < 0x110000.
  CharClass of(std::uint32_t code_point) const { return table_.of(code_point); }

 private:
  CharClasses();
  CodePointTable<CharClass> table_;
};

}  // namespace tessera::text
