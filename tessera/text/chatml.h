#pragma once
/// \file
/// Conversations as text, in ChatML (https://github.com/openai/openai-python/blob/v0.28.1/chatml.md), the form of
/// SmolLM2, Qwen2/2.5/3 and most fine-tunes:
///
///   <|im_start|>system\nYou are brief.<|im_end|>\n
///   <|im_start|>user\nHello!<|im_end|>\n
///   <|im_start|>assistant\nHi.<|im_end|>\n
///
/// The form is fixed; chat_template.h renders by the template that comes with a model. A model whose tokenizer lacks
/// the two markers was taught another form: check_chat_tokens() refuses it.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/text/tokenizer.h>

namespace tessera::text {

inline constexpr std::string_view chat_begin = "<|im_start|>";
inline constexpr std::string_view chat_end = "<|im_end|>";

struct Message {
  std::string role;     ///< "system", "user" or "assistant"
  std::string content;  ///< any UTF-8 text, also none
};

/// A part of the rendered text. Pieces are encoded one by one (a token never reaches across two pieces).
struct Piece {
  std::string text;
  bool scored = false;  ///< its tokens count in the loss
};

/// The pieces of a conversation; their concatenation is the text above. Scored: for every message of the assistant its
/// content and the <|im_end|> behind it, as one piece - so the model learns what to say and to stop. Not scored:
/// everything else, also "<|im_start|>assistant\n" before the content (given at generation) and the "\n" after
/// <|im_end|> (never generated). Neighbouring pieces differ in `scored`.
///
/// add_generation_prompt: ends with an open "<|im_start|>assistant\n" for the model to continue.
///
/// Encoding the pieces one by one gives the tokens of the whole text, because both markers are added tokens: a piece
/// ends behind <|im_end|>, or behind the line feed after a role. Only there could a tokenizer join the line feed with a
/// content that begins with blanks; at generation the prompt ends at that line feed too, so the pieces' tokens are the
/// ones that the model will see.
///
/// Throws InputError for no message, an unknown role ("tool" is named as not supported), a marker inside a content (it
/// would forge a turn).
std::vector<Piece> render_chat(std::span<const Message> messages, bool add_generation_prompt);

/// Whether the tokenizer knows both markers as single tokens that encode() recognises.
bool has_chat_tokens(const Tokenizer& tokenizer);

/// Throws InputError naming `tokenizer_name` and what to do when has_chat_tokens() is false.
void check_chat_tokens(const Tokenizer& tokenizer, std::string_view tokenizer_name);

}  // namespace tessera::text
