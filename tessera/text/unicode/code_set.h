#pragma once
/// \file
/// Sets of code points, and those that Hugging Face's regular expressions know by name (characters.txt).

#include <cstdint>
#include <string_view>
#include <vector>

namespace tessera::text {

inline constexpr std::uint32_t code_points = 0x110000;  ///< there are as many: 0, 1, ..., 0x10ffff

struct CodeRange {
  std::uint32_t first, last;  ///< both included
};

/// Ascending, disjoint ranges.
using CodeSet = std::vector<CodeRange>;

/// Joins ranges in any order, which may overlap.
CodeSet sorted_union(CodeSet ranges);
CodeSet complement(const CodeSet& set);
bool contains(const CodeSet& set, std::uint32_t code_point);
void append(CodeSet& set, const CodeSet& more);

/// The members of \p{NAME}, or nullptr for an unknown name; "" is \s. "word" is \w of the Rust regex crate and "digit"
/// what tokenizers' Digits cuts at, "combining" what its StripAccents removes: all three know a Unicode of their own.
const CodeSet* find_property(std::string_view name);

}  // namespace tessera::text
