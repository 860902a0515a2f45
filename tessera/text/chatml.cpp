#include <tessera/base/error.h>
#include <tessera/text/chatml.h>

#include <cstdint>
#include <utility>

namespace tessera::text {
namespace {

void check(const Message& message, std::size_t number) {
  const auto fail = [&](const std::string& why) { throw InputError(concat("message ", number, ": ", why)); };
  if (message.role == "tool")
    fail(
        "the role 'tool' is not supported (roles are system, user and assistant): put the tool's result into a message "
        "of the user");
  if (message.role != "system" && message.role != "user" && message.role != "assistant")
    fail(concat("unknown role '", message.role, "' (roles are system, user and assistant)"));
  for (const std::string_view marker : {chat_begin, chat_end}) {
    if (const std::size_t at = message.content.find(marker); at != std::string::npos)
      fail(concat("the content has ", marker, " at byte ", at, ", which would begin or end a turn: take it out"));
  }
}

void append(std::vector<Piece>& pieces, std::string text, bool scored) {
  if (!pieces.empty() && pieces.back().scored == scored)
    pieces.back().text += text;
  else
    pieces.push_back({std::move(text), scored});
}

}  // namespace

std::vector<Piece> render_chat(std::span<const Message> messages, bool add_generation_prompt) {
  if (messages.empty()) throw InputError("a conversation without messages");
  std::vector<Piece> pieces;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const Message& message = messages[i];
    check(message, i + 1);
    append(pieces, concat(chat_begin, message.role, "\n"), false);
    append(pieces, concat(message.content, chat_end), message.role == "assistant");
    append(pieces, "\n", false);
  }
  if (add_generation_prompt) append(pieces, concat(chat_begin, "assistant\n"), false);
  return pieces;
}

bool has_chat_tokens(const Tokenizer& tokenizer) {
  for (const std::string_view marker : {chat_begin, chat_end}) {
    const auto id = tokenizer.token_id(marker);
    if (!id || tokenizer.encode(marker) != std::vector<std::int32_t>{*id}) return false;
  }
  return true;
}

void check_chat_tokens(const Tokenizer& tokenizer, std::string_view tokenizer_name) {
  if (has_chat_tokens(tokenizer)) return;
  throw InputError(
      concat("the tokenizer '", tokenizer_name, "' has no tokens ", chat_begin, " and ", chat_end,
             ", which conversations (field \"messages\") are written with: use the tokenizer of a chat model "
             "(SmolLM2-Instruct, Qwen2), or give the data as \"prompt\" and \"completion\""));
}

}  // namespace tessera::text
