#pragma once
/// \file
/// Graphemes: user-perceived characters, such as a letter with its marks (Unicode Standard Annex 29). Supports only
/// graphemes that matter to a charsmap, which looks up at most five bytes: CR LF, controls, marks after a character,
/// prepended marks. Flags, emoji joined by U+200D, Hangul of several letters and Indic conjuncts are longer.

#include <cstddef>
#include <string_view>

namespace tessera::text {

/// The end of the grapheme that begins at text[at]. `text` must be well-formed UTF-8, `at` less than its size.
std::size_t grapheme_end(std::string_view text, std::size_t at);

}  // namespace tessera::text
