#pragma once
/// \file
/// Letters, numbers and blanks as Hugging Face's regular expressions see them (tables in unicode_ranges.h).

#include <array>
#include <cstdint>
#include <memory>

namespace tessera::text {

enum class CharClass : std::uint8_t { other, letter, number, space };

/// Class of every code point in two lookups. Immutable.
class CharClasses {
 public:
  /// The one table of the process, built on first use (thread-safe).
  static const CharClasses& get();

  /// code_point < 0x110000.
  CharClass of(std::uint32_t code_point) const { return blocks_[block_of_[code_point >> 8]][code_point & 255]; }

 private:
  using Block = std::array<CharClass, 256>;
  CharClasses();
  std::array<std::uint16_t, 0x1100> block_of_{};
  std::unique_ptr<Block[]> blocks_;  ///< equal blocks are shared
};

}  // namespace tessera::text
