#pragma once
/// \file
/// Sets, classes and mappings of code points, from characters.txt (embedded in the library). Each call parses its
/// entry, so callers should keep the result. A missing or malformed entry throws Error.

#include <tessera/text/unicode/code_set.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tessera::text {

CodeSet character_set(std::string_view name);

struct ClassRange {
  std::uint32_t first, last;  ///< both included
  std::uint8_t number;        ///< class of all code points in the range
};
/// In order of their code points.
std::vector<ClassRange> character_classes(std::string_view name);

/// Maps code points to their replacements; code points that are not listed are unchanged.
using CharacterMap = std::unordered_map<std::uint32_t, std::u32string>;
CharacterMap character_map(std::string_view name);

}  // namespace tessera::text
