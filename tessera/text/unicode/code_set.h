#pragma once
/// \file
/// Sets of code points, and the named ones used by Hugging Face's regular expressions (characters.txt).

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::text {

inline constexpr std::uint32_t code_points = 0x110000;  ///< number of code points: 0, 1, ..., 0x10ffff

struct CodeRange {
  std::uint32_t first, last;  ///< both included
};

/// Ascending, disjoint ranges.
using CodeSet = std::vector<CodeRange>;

/// Merges ranges in any order, possibly overlapping.
CodeSet sorted_union(CodeSet ranges);
CodeSet complement(const CodeSet& set);
bool contains(const CodeSet& set, std::uint32_t code_point);
void append(CodeSet& set, const CodeSet& more);

/// The members of \p{NAME}, or nullptr for an unknown name; "" is \s. "word" is \w of the Rust regex crate, "digit" the
/// set that tokenizers' Digits cuts at, "combining" the set that its StripAccents removes; these three use their own
/// Unicode versions.
const CodeSet* find_property(std::string_view name);

}  // namespace tessera::text
