#pragma once
/// \file
/// text/unicode/: the parts of Unicode that tokenizers need: classes of characters, normal forms, UTF-8.
///
/// Unicode normal forms C, D, KC and KD (Unicode Standard Annex 15) as computed by Hugging Face `tokenizers`: with the
/// tables of its Unicode version (characters.txt), so that text normalizes to the same bytes regardless of later
/// versions.

#include <string>
#include <string_view>

namespace tessera::text {

/// Normal form C (canonical decomposition, then composition) of well-formed UTF-8. Returns `text` itself if it is
/// already normalized (checked at GB/s for ASCII, about 300 MB/s otherwise), otherwise a view of `storage`, which is
/// overwritten.
std::string_view to_nfc(std::string_view text, std::string& storage);

/// Normal form D (canonical decomposition); otherwise as to_nfc().
std::string_view to_nfd(std::string_view text, std::string& storage);

/// The compatibility forms KC and KD also replace characters that differ only in appearance ("\xEF\xAC\x81", a
/// ligature, by "fi").
std::string_view to_nfkc(std::string_view text, std::string& storage);
std::string_view to_nfkd(std::string_view text, std::string& storage);

}  // namespace tessera::text
