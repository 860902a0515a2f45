#pragma once
/// \file
/// The ChatML format of conversations (https://github.com/openai/openai-python/blob/v0.28.1/chatml.md), used by
/// SmolLM2, Qwen2/2.5/3 and most fine-tunes:
///
///   <|im_start|>system\nYou are brief.<|im_end|>\n
///   <|im_start|>user\nHello!<|im_end|>\n
///   <|im_start|>assistant\nHi.<|im_end|>\n
///
/// Used for a tokenizer that has both markers but no template of its own (chat_template.h).

#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.h>

namespace tessera::text {

inline constexpr std::string_view chat_begin = "<|im_start|>";
inline constexpr std::string_view chat_end = "<|im_end|>";

/// A part of the rendered text. Pieces are encoded separately (a token never spans two pieces).
struct Piece {
  std::string text;
  bool scored = false;  ///< whether its tokens count in the loss
};

/// Whether the tokenizer has both markers as single tokens that encode() recognises.
bool has_chat_tokens(const Tokenizer& tokenizer);

}  // namespace tessera::text
