#pragma once
/// \file
/// Graphemes: what readers see as one character, a letter with its marks (Unicode Standard Annex 29), as far as they
/// matter to a charsmap, which looks at those of at most five bytes: CR LF, controls, marks after a character,
/// prepended marks. Flags, emoji joined by U+200D, Hangul of several letters and Indic conjuncts are longer.

#include <cstddef>
#include <string_view>

namespace tessera::text {

/// Where the grapheme that begins at text[at] ends. `text`: well-formed UTF-8, at < its size.
std::size_t grapheme_end(std::string_view text, std::size_t at);

}  // namespace tessera::text
