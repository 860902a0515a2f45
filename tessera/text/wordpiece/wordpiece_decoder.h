#pragma once
/// \file
/// How WordPiece tokens become text again: the decoder WordPiece of a tokenizer.json.

#include <string>
#include <string_view>

namespace tessera::text {

struct WordPieceDecoder {
  bool joins = true;          ///< false: there is none, tokens stand between blanks
  std::string prefix = "##";  ///< taken off a token, which then joins the one before it; others get a blank
  bool cleanup = true;        ///< "do n't ." becomes "don't."

  /// What one token adds to the text; `is_first`: nothing stands before it.
  std::string decode(std::string_view token, bool is_first) const;
};

/// English spelling out of tokens, token by token as Hugging Face does it: most of the patterns hold a blank that only
/// stands before a token.
void clean_up_english(std::string& token);

/// Every occurrence of `from` (not empty) becomes `to`.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace tessera::text
