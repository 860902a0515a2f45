#pragma once
/// \file
/// Converts WordPiece tokens back to text: the decoder WordPiece of a tokenizer.json.

#include <string>
#include <string_view>

namespace tessera::text {

struct WordPieceDecoder {
  bool joins = true;  ///< false: without a decoder, tokens are joined with blanks
  /// removed from a token, which is then joined to the previous one; other tokens get a blank
  std::string prefix = "##";
  bool cleanup = true;  ///< "do n't ." becomes "don't."

  /// The text that one token adds; `is_first`: whether it is the first token.
  std::string decode(std::string_view token, bool is_first) const;
};

/// Undoes the tokenization of English spelling, token by token as in Hugging Face: most of the patterns contain a blank
/// that only occurs before a token.
void clean_up_english(std::string& token);

/// Replaces every occurrence of `from` (not empty) with `to`.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace tessera::text
