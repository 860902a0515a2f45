#pragma once
/// \file
/// Regular expressions over an alphabet of bytes. PCRE2 searches a class such as \p{L} beyond ASCII range by range
/// (hundreds of them, for every character of a Hindi text), whereas a class of bytes is one bitmap look-up. So code
/// points that no set of a pattern distinguishes are mapped to the same byte, and pattern and text are translated:
/// ASCII is unchanged, everything else becomes a byte from 0x80 on. A match of n bytes is a match of n code points.

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

/// Maps code points to bytes. Immutable.
class CompactAlphabet {
 public:
  /// Consecutive intervals of code points from 0x80 on: the first code point of each and its byte.
  explicit CompactAlphabet(const std::vector<std::pair<std::uint32_t, std::uint8_t>>& intervals);
  std::uint8_t of(std::uint32_t code_point) const { return blocks_[block_of_[code_point >> 8]][code_point & 255]; }
  /// Translates well-formed UTF-8 into `out`, one byte per code point.
  void translate(std::string_view text, std::string& out) const;

 private:
  using Block = std::array<std::uint8_t, 256>;
  std::array<std::uint16_t, 0x1100> block_of_{};
  std::vector<Block> blocks_;  ///< equal blocks are shared
};

struct CompactPattern {
  std::string pattern;  ///< for PCRE2 without PCRE2_UTF
  CompactAlphabet alphabet;
};

/// Translates a pattern that spell_out_classes() accepts. Returns nullopt for constructs that no known tokenizer needs:
/// classes under (?i), unusual ranges, more than 127 different bytes.
std::optional<CompactPattern> compact(std::string_view pattern);

}  // namespace tessera::text
