#pragma once
/// \file
/// Conversations as text, in ChatML (https://github.com/openai/openai-python/blob/v0.28.1/chatml.md), the form of
/// SmolLM2, Qwen2/2.5/3 and most fine-tunes:
///
///   <|im_start|>system\nYou are brief.<|im_end|>\n
///   <|im_start|>user\nHello!<|im_end|>\n
///   <|im_start|>assistant\nHi.<|im_end|>\n
///
/// What a tokenizer with both markers and no template of its own is given (chat_template.h).

#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.h>

namespace tessera::text {

inline constexpr std::string_view chat_begin = "<|im_start|>";
inline constexpr std::string_view chat_end = "<|im_end|>";

/// A part of the rendered text. Pieces are encoded one by one (a token never reaches across two pieces).
struct Piece {
  std::string text;
  bool scored = false;  ///< its tokens count in the loss
};

/// Whether the tokenizer knows both markers as single tokens that encode() recognises.
bool has_chat_tokens(const Tokenizer& tokenizer);

}  // namespace tessera::text
