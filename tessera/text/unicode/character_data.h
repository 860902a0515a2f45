#pragma once
/// \file
/// Sets, classes and mappings of code points, as characters.txt (part of the library) lists them. Each call reads its
/// entry: callers keep what they get. An entry that is missing or cannot be read throws Error.

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
  std::uint8_t number;        ///< class of them all
};
/// In order of their code points.
std::vector<ClassRange> character_classes(std::string_view name);

/// What a code point becomes; of those that are not listed nothing is said.
using CharacterMap = std::unordered_map<std::uint32_t, std::u32string>;
CharacterMap character_map(std::string_view name);

}  // namespace tessera::text
