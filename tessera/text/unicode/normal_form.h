#pragma once
/// \file
/// text/unicode/: what tokenizers need of Unicode: classes of characters, normal forms, UTF-8.
///
/// Unicode normal forms C, D, KC and KD (Unicode Standard Annex 15) as Hugging Face `tokenizers` computes them: with
/// the tables of its version (characters.txt), so that text normalizes to the same bytes
/// whatever Unicode says later.

#include <string>
#include <string_view>

namespace tessera::text {

/// Normal form C (canonical decomposition, then composition) of well-formed UTF-8. Returns `text` itself where it is
/// normal already (found out at GB/s for ASCII, some 300 MB/s otherwise), else a view of `storage`, which is
/// overwritten.
std::string_view to_nfc(std::string_view text, std::string& storage);

/// Normal form D (canonical decomposition); otherwise the same.
std::string_view to_nfd(std::string_view text, std::string& storage);

/// The compatibility forms KC and KD: what only looks different is replaced too ("\xEF\xAC\x81", a ligature, by "fi").
std::string_view to_nfkc(std::string_view text, std::string& storage);
std::string_view to_nfkd(std::string_view text, std::string& storage);

}  // namespace tessera::text
