#include <tessera/data/example_line.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/text/chat_template.h>

namespace tessera::data {
namespace {

using text::Piece;  // here: a piece of an example's text, tokenized by itself

const std::string& not_empty(const Value& field, std::string_view name) {
  const std::string& text = field.as_string();
  if (text.empty())
    throw InputError(concat(field.where().str(), ": \"", name, "\" is empty: nothing can be learnt from it"));
  return text;
}

/// A text, or a list of parts.
void not_empty_content(const Value& content) {
  if (!content.is_array())
    not_empty(content, "content");
  else if (content.items().empty())
    throw InputError(concat(content.where().str(), ": \"content\" is empty: nothing can be learnt from it"));
}

/// What kind of example a line is; the fields of that kind are all there. Places are spelt out for complaints only: in
/// a part of a large file that counts the lines before it.
ExampleKind kind_of(const Value& line, const std::string& text_field) {
  line.members();  // an object
  const auto has = [&](std::string_view name) { return line.find(name) != nullptr; };
  if (text_field != "text" && has(text_field)) return ExampleKind::text;  // asked for by name

  const bool text = has(text_field), prompt = has("prompt"), completion = has("completion"), messages = has("messages");
  if (text + (prompt || completion) + messages > 1)
    throw InputError(concat(line.where().str(), ": has fields of several kinds of example; give either \"", text_field,
                            "\", or \"prompt\" and \"completion\", or \"messages\""));
  if (text) return ExampleKind::text;
  if (messages) return ExampleKind::messages;
  if (prompt && completion) return ExampleKind::prompt_completion;
  if (prompt || completion)
    throw InputError(concat(line.where().str(), ": has \"", prompt ? "prompt" : "completion", "\" but no \"",
                            prompt ? "completion" : "prompt", "\""));
  throw InputError(concat(line.where().str(), ": has none of the fields of an example: \"", text_field,
                          "\", or \"prompt\" and \"completion\", or \"messages\""));
}

std::vector<std::string_view> fields_of(ExampleKind kind, const std::string& text_field) {
  switch (kind) {
    case ExampleKind::text:
      return {text_field};
    case ExampleKind::prompt_completion:
      return {"prompt", "completion"};
    case ExampleKind::messages:
      return {"messages", "tools", "documents", "chat_template_kwargs"};
  }
  return {};
}

/// A list, also one that is written as JSON in a text; null where it is missing or empty.
Value list_of(const Value& line, const char* name) {
  const Value* found = line.find(name);
  if (found == nullptr || found->is_null()) return {};
  if (found->is_string() && trim(found->as_string()).empty()) return {};
  Value list =
      found->is_string() ? parse_json(found->as_string(), concat(found->where().str(), ": \"", name, "\"")) : *found;
  if (list.is_null() || list.items().empty()) return {};
  return list;
}

/// Whether the assistant says it; throws where that is nothing, and no call of a tool either.
bool is_answer(const Value& message) {
  if (message.at("role").as_string() != "assistant") return false;
  const Value* calls = message.find("tool_calls");
  if (calls == nullptr || calls->is_null()) not_empty_content(message.at("content"));
  return true;
}

std::vector<Piece> chat_pieces(const Value& line, const ExampleOptions& options) {
  const Value& messages = line.at("messages");
  bool answered = false;
  for (const Value& message : messages.items()) answered |= is_answer(message);
  if (!messages.items().empty() && options.assistant_only && !answered)
    throw InputError(concat(messages.where().str(), ": no message is the assistant's, so that nothing is scored"));
  text::ChatOptions chat;
  chat.tools = list_of(line, "tools");
  chat.documents = list_of(line, "documents");
  if (const Value* variables = line.find("chat_template_kwargs"); variables != nullptr && !variables->is_null())
    for (const auto& [name, value] : variables->members()) chat.variables.emplace_back(name, value);
  try {
    if (options.assistant_only) return options.chat->scored_pieces(messages, chat);
    return {{options.chat->render(messages, chat).text, true}};
  } catch (const InputError& error) {
    throw InputError(concat(messages.where().str(), ": ", error.what()));
  }
}

std::vector<Piece> pieces_of(const Value& line, ExampleKind kind, const ExampleOptions& options) {
  if (kind == ExampleKind::text) return {{not_empty(line.at(options.text_field), options.text_field), true}};
  if (kind == ExampleKind::messages) return chat_pieces(line, options);
  return {{line.at("prompt").as_string(), false}, {not_empty(line.at("completion"), "completion"), true}};
}

void append(ExampleLine& example, std::span<const std::int32_t> ids, bool scored) {
  example.ids.insert(example.ids.end(), ids.begin(), ids.end());
  example.scored.insert(example.scored.end(), ids.size(), scored);
}

/// Whether the tokenizer's own beginning and end go around the text: a model's template writes them itself.
bool has_tokenizer_ends(const ExampleLine& example, const ExampleOptions& options) {
  return example.kind != ExampleKind::messages || options.chat->is_chatml();
}

/// A conversation has its own ends.
void append_end(ExampleLine& example, const text::Tokenizer& tokenizer, const ExampleOptions& options) {
  const bool chat = example.kind == ExampleKind::messages;
  if (has_tokenizer_ends(example, options)) append(example, tokenizer.suffix(), !chat || !options.assistant_only);
  const auto end = example.kind == ExampleKind::text ? tokenizer.end_of_text() : tokenizer.end_of_turn();
  const bool there = !example.ids.empty() && example.ids.back() == end;
  if (end && !chat && !there) append(example, std::vector<std::int32_t>{*end}, true);
}

}  // namespace

const char* name_of(ExampleKind kind) {
  switch (kind) {
    case ExampleKind::text:
      return "text";
    case ExampleKind::prompt_completion:
      return "prompt and completion";
    case ExampleKind::messages:
      return "messages";
  }
  return "?";
}

std::int64_t ExampleLine::scored_tokens() const {
  if (scored.empty()) return 0;
  return std::count(scored.begin() + 1, scored.end(), true);
}

ExampleLine encode_example(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                           const EncodePiece& encode) {
  ExampleLine example;
  example.kind = kind_of(line, options.text_field);
  const auto used = fields_of(example.kind, options.text_field);
  for (const auto& [name, value] : line.members())
    if (std::find(used.begin(), used.end(), name) == used.end()) example.unused_fields.push_back(name);

  const bool chat = example.kind == ExampleKind::messages;
  if (chat && options.chat == nullptr)
    throw InputError(concat(line.where().str(), ": holds messages, but ", options.why_no_chat));
  if (has_tokenizer_ends(example, options)) append(example, tokenizer.prefix(), example.kind == ExampleKind::text);
  std::optional<text::ChatEncoder> encoder;
  if (chat) encoder.emplace(tokenizer);
  bool first = true;
  for (const Piece& piece : pieces_of(line, example.kind, options)) {
    const bool begins = std::exchange(first, false);
    const std::vector<std::int32_t> ids = !chat    ? tokenizer.encode(piece.text)
                                          : encode ? encode(piece.text, begins, *encoder)
                                                   : encoder->encode(piece.text, begins);
    example.text_bytes += piece.text.size();
    example.text_tokens += ids.size();
    append(example, ids, piece.scored);
  }
  append_end(example, tokenizer, options);

  const auto length = static_cast<std::size_t>(options.max_length);
  example.cut = example.ids.size() > length;
  if (example.cut) {
    example.ids.resize(length);
    example.scored.resize(length);
  }
  return example;
}

}  // namespace tessera::data
