#include <tessera/data/example_line.h>

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/corpus/left_out.h>
#include <tessera/data/token_record.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/parted_tokens.h>

namespace tessera::data {
namespace {

using corpus::LeftOut;
using text::Piece;  // a separately tokenized piece of an example's text
using Completion = text::ChatTemplate::Completion;

const std::string& not_empty(const Value& field, std::string_view name) {
  const std::string& text = field.as_string();
  if (text.empty()) throw LeftOut(concat("\"", name, "\" is empty"));
  return text;
}

ExampleKind kind_of(const Value& line) {
  line.members();  // throws unless it is an object
  if (line.contains("messages")) return ExampleKind::messages;
  if (line.contains("prompt")) return ExampleKind::prompt_completion;
  if (!line.contains("input_ids")) return ExampleKind::text;
  return has_labels(line) ? ExampleKind::labelled_tokens : ExampleKind::tokens;
}

/// Returns a list, parsed from JSON if it is written as text; null if it is missing or empty.
Value list_of(const Value& line, const char* name) {
  const Value* found = line.find(name);
  if (found == nullptr || found->is_null()) return {};
  if (found->is_string() && trim(found->as_string()).empty()) return {};
  Value list =
      found->is_string() ? parse_json(found->as_string(), concat(found->where().str(), ": \"", name, "\"")) : *found;
  if (list.is_null() || list.items().empty()) return {};
  return list;
}

bool calls_tools(const Value& message) {
  const Value* calls = message.find("tool_calls");
  return calls != nullptr && !calls->is_null() && !(calls->is_array() && calls->items().empty());
}

/// Throws LeftOut for empty messages (null content, empty answer). Returns whether there is an answer.
bool check_messages(const Value& messages) {
  bool answered = false;
  for (const Value& message : messages.items()) {
    const bool answers = message.at("role").as_string() == "assistant", calls = answers && calls_tools(message);
    answered |= answers;
    const Value* content = message.find("content");
    if (calls || (content == nullptr && !answers)) continue;
    if (answers) content = &message.at("content");
    const bool empty =
        content->is_array() ? content->items().empty() : !content->is_null() && content->as_string().empty();
    if (content->is_null() || (answers && empty))
      throw LeftOut(answers ? "an answer is empty" : "a message's content is null");
  }
  return answered;
}

bool has_text_arguments(const Value& messages) {
  const auto is_text = [](const Value& call) {
    const Value* function = call.is_object() ? call.find("function") : nullptr;
    const Value& held = function != nullptr && function->is_object() ? *function : call;
    const Value* arguments = held.is_object() ? held.find("arguments") : nullptr;
    return arguments != nullptr && arguments->is_string();
  };
  return std::any_of(messages.items().begin(), messages.items().end(), [&](const Value& message) {
    const Value* calls = message.find("tool_calls");
    return calls != nullptr && calls->is_array() && std::any_of(calls->items().begin(), calls->items().end(), is_text);
  });
}

text::ChatOptions chat_options(const Value& line) {
  text::ChatOptions chat;
  chat.tools = list_of(line, "tools");
  chat.documents = list_of(line, "documents");
  if (const Value* variables = line.find("chat_template_kwargs"); variables != nullptr && !variables->is_null())
    for (const auto& [name, value] : variables->members()) chat.variables.emplace_back(name, value);
  return chat;
}

/// Collects members that the template never reads, at any depth; the arguments of tool calls are not inspected.
void find_unread(const Value& value, const std::string& path, const text::ChatTemplate& chat,
                 std::vector<std::string>& unread) {
  if (value.is_array())
    for (const Value& item : value.items()) find_unread(item, path, chat, unread);
  if (!value.is_object()) return;
  for (const auto& [name, member] : value.members()) {
    if (member.is_null() || name == "role" || (member.is_array() && member.items().empty())) continue;
    const bool thought = name == "reasoning_content" || name == "thinking" || name == "reasoning";
    const bool read = thought ? chat.reads("reasoning_content") || chat.reads("thinking") || chat.reads("reasoning")
                              : chat.reads(name);
    if (!read)
      unread.push_back(concat(path, ".", name));
    else if (name != "arguments" && !chat.writes_objects())
      find_unread(member, concat(path, ".", name), chat, unread);
  }
}

void find_unread(const Value& line, const text::ChatTemplate& chat, std::vector<std::string>& unread) {
  for (const char* list : {"messages", "prompt", "completion"})
    if (const Value* found = line.find(list)) find_unread(*found, list, chat, unread);
  for (const char* beside : {"tools", "documents"})
    if (line.contains(beside) && !chat.reads(beside)) unread.emplace_back(beside);
  if (const Value* variables = line.find("chat_template_kwargs"); variables != nullptr && variables->is_object())
    for (const auto& [name, value] : variables->members())
      if (!chat.reads(name)) unread.push_back(concat("chat_template_kwargs.", name));
}

/// Selects the tokens of an example that are scored.
enum class Scored { as_asked, whole_answer };

class Encoder {
 public:
  Encoder(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options, Scored scored)
      : line_(line), tokenizer_(tokenizer), options_(options), scored_(scored) {
    example_.kind = kind_of(line);
    const auto is_list = [&](const char* name) { return line.contains(name) && line.at(name).is_array(); };
    chat_ = example_.kind == ExampleKind::messages || (is_list("prompt") && is_list("completion"));
    if (chat_ && options.chat == nullptr)
      throw InputError(concat(line.where().str(), ": contains messages, but ", options.why_no_chat));
  }

  ExampleLine encode(const EncodePiece& encode) {
    if (example_.kind == ExampleKind::tokens || example_.kind == ExampleKind::labelled_tokens) {
      TokenRecord record = read_token_record(line_, options_.completion_only);
      example_.ids = std::move(record.ids);
      example_.scored = std::move(record.scored);
      return std::move(example_);
    }
    std::optional<text::ChatEncoder> encoder;
    if (chat_) encoder.emplace(tokenizer_);
    bool first = true;
    for (const Piece& piece : chat_ ? chat_pieces() : text_pieces()) {
      const bool begins = std::exchange(first, false);
      const std::vector<std::int32_t> ids = !chat_   ? tokenizer_.encode(piece.text)
                                            : encode ? encode(piece.text, begins, *encoder)
                                                     : encoder->encode(piece.text, begins);
      example_.text_bytes += piece.text.size();
      example_.text_tokens += ids.size();
      append(ids, piece.scored);
    }
    if (!chat_ || options_.chat->is_chatml()) put_ends();
    return std::move(example_);
  }

 private:
  std::vector<Piece> text_pieces() const {
    if (example_.kind == ExampleKind::text) return {{not_empty(line_.at("text"), "text"), true}};
    const bool all = scored_ == Scored::as_asked && !options_.completion_only;
    return {{line_.at("prompt").as_string(), all}, {not_empty(line_.at("completion"), "completion"), true}};
  }

  std::vector<Piece> chat_pieces() {
    const bool whole = example_.kind == ExampleKind::messages;
    const Value& begin = line_.at(whole ? "messages" : "prompt");
    bool answered = check_messages(begin);
    Value both;
    if (!whole) {
      const Value& completion = line_.at("completion");
      if (completion.items().empty()) throw LeftOut("\"completion\" is empty");
      answered = check_messages(completion);
      both = begin;
      for (const Value& message : completion.items()) both.push_back(message);
    }
    const Value& messages = whole ? begin : both;
    const std::size_t prompt = whole ? 0 : begin.items().size();
    if (messages.items().empty()) throw LeftOut("the conversation has no messages");
    const bool is_pair = scored_ == Scored::whole_answer;
    if (!answered && (options_.assistant_only || is_pair)) throw LeftOut("no message is from the assistant");
    const text::ChatTemplate& chat = *options_.chat;
    const text::ChatOptions beside = chat_options(line_);
    find_unread(line_, chat, example_.unused_fields);
    std::vector<Piece> pieces;
    try {
      if (is_pair)
        pieces = chat.completion_pieces(messages, prompt, Completion::without_last_blanks, beside);
      else if (!options_.assistant_only && (whole || !options_.completion_only))
        pieces = {{chat.render(messages, beside).text, true}};
      else
        pieces = chat.completion_pieces(messages, options_.completion_only ? prompt : 0,
                                        options_.assistant_only ? Completion::assistant : Completion::whole, beside);
    } catch (const InputError& error) {
      throw InputError(concat(line_.where().str(), ": ", error.what()));
    }
    while (is_pair && !pieces.empty() && !pieces.back().scored) pieces.pop_back();
    if (is_pair && pieces.empty())
      throw InputError(concat(line_.where().str(), ": the chat template omits the answer"));
    remark_on(pieces, messages, beside);
    return pieces;
  }

  void remark_on(const std::vector<Piece>& pieces, const Value& messages, const text::ChatOptions& beside) {
    if (options_.chat->quotes_arguments() && has_text_arguments(messages))
      example_.remark =
          "the arguments of a tool call are a string, which the template puts in quotes, as in transformers: pass "
          "the object itself instead of its JSON text";
    const auto is_marked = [](const Piece& piece) { return piece.text.find(text::parting) != std::string::npos; };
    if (std::none_of(pieces.begin(), pieces.end(), is_marked)) return;
    const std::string* token = options_.chat->special_token_in(messages);
    for (const Value* list : {&beside.tools, &beside.documents})
      if (token == nullptr) token = options_.chat->special_token_in(*list);
    if (token != nullptr)
      example_.remark = concat("the special token ", *token,
                               " appears in a message; it is read as text, because as a token it would forge a turn");
  }

  void append(std::span<const std::int32_t> ids, bool scored) {
    example_.ids.insert(example_.ids.end(), ids.begin(), ids.end());
    example_.scored.insert(example_.scored.end(), ids.size(), scored);
  }

  /// Adds the tokenizer's own prefix and suffix unless the text already has them; a conversation is ended by its
  /// template.
  void put_ends() {
    const std::vector<std::int32_t> prefix = tokenizer_.prefix(), suffix = tokenizer_.suffix();
    std::vector<std::int32_t>& ids = example_.ids;
    const bool begun = ids.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), ids.begin());
    if (!begun) {
      ids.insert(ids.begin(), prefix.begin(), prefix.end());
      example_.scored.insert(example_.scored.begin(), prefix.size(), example_.kind == ExampleKind::text);
    }
    example_.ends_before = prefix.size();
    const bool ended = ids.size() >= suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), ids.rbegin());
    const bool is_pair = scored_ == Scored::whole_answer;
    if (!ended && !(chat_ && is_pair)) append(suffix, !chat_ || !options_.assistant_only);
    if (chat_) return;
    const auto end = example_.kind == ExampleKind::text ? tokenizer_.end_of_text() : tokenizer_.end_of_turn();
    if (end && (ids.empty() || ids.back() != *end)) append(std::vector<std::int32_t>{*end}, true);
  }

  const Value& line_;
  const text::Tokenizer& tokenizer_;
  const ExampleOptions& options_;
  Scored scored_;
  ExampleLine example_;
  bool chat_ = false;
};

}  // namespace

const char* name_of(ExampleKind kind) {
  switch (kind) {
    case ExampleKind::text:
      return "text";
    case ExampleKind::prompt_completion:
      return "prompt and completion";
    case ExampleKind::messages:
      return "messages";
    case ExampleKind::tokens:
      return "token ids";
    case ExampleKind::labelled_tokens:
      return "token ids and labels";
  }
  return "?";
}

std::int64_t ExampleLine::scored_tokens() const {
  if (scored.empty()) return 0;
  return std::count(scored.begin() + 1, scored.end(), true);
}

ExampleLine encode_example(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options,
                           const EncodePiece& encode) {
  ExampleLine example = Encoder(line, tokenizer, options, Scored::as_asked).encode(encode);
  const auto length = static_cast<std::size_t>(options.max_length);
  example.cut = example.ids.size() > length;
  if (example.cut) {
    example.ids.resize(length);
    example.scored.resize(length);
  }
  return example;
}

ExampleLine encode_answer(const Value& line, const text::Tokenizer& tokenizer, const ExampleOptions& options) {
  return Encoder(line, tokenizer, options, Scored::whole_answer).encode({});
}

}  // namespace tessera::data
