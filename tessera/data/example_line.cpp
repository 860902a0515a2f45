#include <tessera/data/example_line.h>

#include <algorithm>
#include <span>
#include <string_view>

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

/// What kind of example a line is; the fields of that kind are all there.
ExampleKind kind_of(const Value& line, const std::string& text_field) {
  line.members();  // an object
  const auto has = [&](std::string_view name) { return line.find(name) != nullptr; };
  if (text_field != "text" && has(text_field)) return ExampleKind::text;  // asked for by name

  const bool text = has(text_field), prompt = has("prompt"), completion = has("completion"), messages = has("messages");
  const std::string where = line.where().str();
  if (text + (prompt || completion) + messages > 1)
    throw InputError(concat(where, ": has fields of several kinds of example; give either \"", text_field,
                            "\", or \"prompt\" and \"completion\", or \"messages\""));
  if (text) return ExampleKind::text;
  if (messages) return ExampleKind::messages;
  if (prompt && completion) return ExampleKind::prompt_completion;
  if (prompt || completion)
    throw InputError(concat(where, ": has \"", prompt ? "prompt" : "completion", "\" but no \"",
                            prompt ? "completion" : "prompt", "\""));
  throw InputError(concat(where, ": has none of the fields of an example: \"", text_field,
                          "\", or \"prompt\" and \"completion\", or \"messages\""));
}

std::vector<std::string_view> fields_of(ExampleKind kind, const std::string& text_field) {
  switch (kind) {
    case ExampleKind::text:
      return {text_field};
    case ExampleKind::prompt_completion:
      return {"prompt", "completion"};
    case ExampleKind::messages:
      return {"messages"};
  }
  return {};
}

std::vector<Piece> chat_pieces(const Value& list, bool assistant_only) {
  std::vector<text::Message> messages;
  bool answered = false;
  for (const Value& item : list.items()) {
    const Value &role = item.at("role"), &content = item.at("content");
    messages.push_back({role.as_string(), content.as_string()});
    if (messages.back().role != "assistant") continue;
    not_empty(content, "content");
    answered = true;
  }
  const std::string where = list.where().str();
  if (!messages.empty() && assistant_only && !answered)
    throw InputError(concat(where, ": no message is the assistant's, so that nothing is scored"));
  try {
    std::vector<Piece> pieces = text::render_chat(messages, /*add_generation_prompt=*/false);
    for (Piece& piece : pieces) piece.scored |= !assistant_only;
    return pieces;
  } catch (const InputError& error) {
    throw InputError(concat(where, ": ", error.what()));
  }
}

std::vector<Piece> pieces_of(const Value& line, ExampleKind kind, const ExampleOptions& options) {
  if (kind == ExampleKind::text) return {{not_empty(line.at(options.text_field), options.text_field), true}};
  if (kind == ExampleKind::messages) return chat_pieces(line.at("messages"), options.assistant_only);
  return {{line.at("prompt").as_string(), false}, {not_empty(line.at("completion"), "completion"), true}};
}

void append(ExampleLine& example, std::span<const std::int32_t> ids, bool scored) {
  example.ids.insert(example.ids.end(), ids.begin(), ids.end());
  example.scored.insert(example.scored.end(), ids.size(), scored);
}

/// A conversation has its own ends.
void append_end(ExampleLine& example, const text::Tokenizer& tokenizer, const ExampleOptions& options) {
  const bool chat = example.kind == ExampleKind::messages;
  append(example, tokenizer.suffix(), !chat || !options.assistant_only);
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

ExampleLine encode_example(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options) {
  ExampleLine example;
  example.kind = kind_of(line, options.text_field);
  const auto used = fields_of(example.kind, options.text_field);
  for (const auto& [name, value] : line.members())
    if (std::find(used.begin(), used.end(), name) == used.end()) example.unused_fields.push_back(name);

  append(example, tokenizer.prefix(), example.kind == ExampleKind::text);
  for (const Piece& piece : pieces_of(line, example.kind, options)) {
    const std::vector<std::int32_t> ids = tokenizer.encode(piece.text);
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
