#pragma once
/// \file
/// Regular expressions over an alphabet of bytes. PCRE2 searches a class such as \p{L} beyond ASCII range by range
/// (hundreds of them, for every character of a Hindi text); a class of bytes is one look into a bitmap. So code points
/// that no set of a pattern tells apart become one byte, and pattern and text are translated: ASCII stays as it is, all
/// else is a byte from 0x80 on. A match of n bytes is one of n code points.

#include <tessera/text/unicode/code_set.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::text {

/// Which byte stands for a code point. Immutable.
class CompactAlphabet {
 public:
  /// Consecutive intervals of code points from 0x80 on: the first code point of each and its byte.
  explicit CompactAlphabet(const std::vector<std::pair<std::uint32_t, std::uint8_t>>& intervals);
  std::uint8_t of(std::uint32_t code_point) const { return blocks_[block_of_[code_point >> 8]][code_point & 255]; }
  /// Well-formed UTF-8 -> a byte for each code point, into `out`.
  void translate(std::string_view text, std::string& out) const;

 private:
  using Block = std::array<std::uint8_t, 256>;
  std::array<std::uint16_t, 0x1100> block_of_{};
  std::vector<Block> blocks_;  ///< equal blocks are shared
};

struct CompactPattern {
  std::string pattern;  ///< for PCRE2 without UTF
  CompactAlphabet alphabet;
};

/// Translates a pattern that spell_out_classes() accepts. nullopt where the translation would need care that no known
/// tokenizer asks for: classes under (?i), unusual ranges, more than 127 different bytes.
std::optional<CompactPattern> compact(std::string_view pattern);

}  // namespace tessera::text
