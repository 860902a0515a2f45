#include <algorithm>
#include <filesystem>

#include <tessera/base/byte_order_mark.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/text/chat_template.h>

namespace tessera::text {
namespace {

constexpr std::uint64_t largest_template = 4u << 20;

constexpr const char* token_names[] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                       "pad_token", "cls_token", "mask_token"};

/// A token of tokenizer_config.json: a text, or an object with `content`.
std::optional<std::string> token_text(const Value* token) {
  if (token != nullptr && token->is_object()) token = token->find("content");
  if (token == nullptr || !token->is_string()) return std::nullopt;
  return token->as_string();
}

void add_special(std::vector<std::string>& special, const Value& token) {
  const Value* is_special = token.is_object() ? token.find("special") : nullptr;
  if (is_special == nullptr || is_special->kind() != Value::Kind::boolean || !is_special->as_bool()) return;
  if (const auto text = token_text(&token)) special.push_back(*text);
}

/// The tokens named by the files next to a template.
ChatTemplate::Tokens read_tokens(const std::string& folder, const Value& config) {
  ChatTemplate::Tokens tokens;
  for (const char* name : token_names)
    if (const auto text = token_text(config.find(name))) tokens.named.emplace_back(name, *text);
  for (const char* group : {"extra_special_tokens", "model_specific_special_tokens"})
    if (const Value* more = config.find(group); more != nullptr && more->is_object())
      for (const auto& [name, token] : more->members())
        if (const auto text = token_text(&token)) tokens.named.emplace_back(name, *text);
  for (const auto& [name, text] : tokens.named) tokens.special.push_back(text);

  const std::string tokenizer = path_join(folder, "tokenizer.json");
  if (const Value* decoder = config.find("added_tokens_decoder"); decoder != nullptr && decoder->is_object()) {
    for (const auto& [id, token] : decoder->members()) add_special(tokens.special, token);
  } else if (path_exists(tokenizer)) {
    const Value json = read_json(tokenizer);
    if (const Value* added = json.is_object() ? json.find("added_tokens") : nullptr; added != nullptr)
      for (const Value& token : added->items()) add_special(tokens.special, token);
  }
  return tokens;
}

/// Adds the tokenizer's own special tokens that encode() recognises. Blanks are always ordinary text.
void add_special(std::vector<std::string>& special, const Tokenizer& tokenizer) {
  for (std::int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string token = tokenizer.decode(std::vector<std::int32_t>{id});
    if (tokenizer.encode(token) == std::vector<std::int32_t>{id}) special.push_back(token);
  }
  if (has_chat_tokens(tokenizer))  // added even if no file marks them as special
    for (const std::string_view mark : {chat_begin, chat_end}) special.emplace_back(mark);
  std::erase_if(special, [](const std::string& token) { return trim(token).empty(); });
  std::sort(special.begin(), special.end());
  special.erase(std::unique(special.begin(), special.end()), special.end());
}

struct Sources {
  std::optional<ChatTemplate::Source> usual, for_tools;
};

ChatTemplate::Source read_source(const std::string& path) {
  const std::uint64_t size = std::filesystem::file_size(path);
  if (size > largest_template)
    throw InputError(concat(path, ": the chat template has ", format_bytes(size), "; it must have at most ",
                            format_bytes(largest_template)));
  return {std::string(without_byte_order_mark(read_file(path))), path};
}

Sources read_files(const std::string& folder) {
  Sources sources;
  const std::string usual = path_join(folder, "chat_template.jinja");
  if (path_exists(usual)) sources.usual = read_source(usual);
  const std::string for_tools = path_join(folder, "additional_chat_templates/tool_use.jinja");
  if (sources.usual && path_exists(for_tools)) sources.for_tools = read_source(for_tools);
  return sources;
}

Sources read_config(const Value& config, const std::string& name) {
  Sources sources;
  const Value* given = config.find("chat_template");
  if (given == nullptr || given->is_null()) return sources;
  if (given->is_string()) {
    sources.usual = {given->as_string(), concat(name, ", chat_template")};
    return sources;
  }
  std::vector<std::string> names;
  for (const Value& one : given->items()) {
    names.push_back(one.at("name").as_string());
    ChatTemplate::Source source{one.at("template").as_string(), concat(name, ", chat_template ", names.back())};
    if (names.back() == "default") sources.usual = source;
    if (names.back() == "tool_use") sources.for_tools = source;
  }
  if (!sources.usual && !names.empty())
    throw InputError(concat(given->where().str(), ": the tokenizer has the chat templates ", join(names),
                            " but none is called default: write the one to use into a file and pass it as "
                            "--chat_template"));
  return sources;
}

bool is_text(const std::string& given) {
  return given.find("{{") != std::string::npos || given.find("{%") != std::string::npos ||
         given.find('\n') != std::string::npos;
}

}  // namespace

ChatTemplate::Source read_chat_template(const std::string& given) {
  if (is_text(given)) return {given, "--chat_template"};
  if (!path_exists(given) || is_directory(given))
    throw InputError(concat("--chat_template ", given, ": neither an existing file nor the text of a template"));
  return read_source(given);
}

ChatTemplate load_chat_template(const Tokenizer& tokenizer, const std::string& place, const std::string& given) {
  const std::filesystem::path path(place);
  const bool in_files = path_exists(place);
  const std::string folder = is_directory(place) ? place : path.has_parent_path() ? path.parent_path().string() : ".";
  const std::string config_path = path_join(folder, "tokenizer_config.json");
  const bool has_config = in_files && path_exists(config_path);
  const Value config = has_config ? read_json(config_path) : Value::make_object();
  config.members();  // throws unless it is an object

  Sources sources;
  if (!given.empty()) {
    sources.usual = read_chat_template(given);
  } else if (in_files) {
    sources = read_files(folder);
    if (!sources.usual) sources = read_config(config, config_path);
  }
  if (sources.usual) {
    ChatTemplate::Tokens tokens = in_files ? read_tokens(folder, config) : ChatTemplate::Tokens{};
    add_special(tokens.special, tokenizer);
    return ChatTemplate(*sources.usual, sources.for_tools, std::move(tokens));
  }
  if (has_chat_tokens(tokenizer)) {
    std::vector<std::string> special = in_files ? read_tokens(folder, config).special : std::vector<std::string>();
    add_special(special, tokenizer);
    return ChatTemplate::chatml(std::move(special));
  }
  throw InputError(
      concat("the tokenizer '", place,
             "' comes with no chat template (chat_template.jinja, or "
             "chat_template in tokenizer_config.json), and has no tokens ",
             chat_begin, " and ", chat_end,
             " for ChatML, so that conversations (field \"messages\") cannot be written: use the "
             "tokenizer of a chat model, specify a template (--chat_template FILE), or provide the data as "
             "\"prompt\" and \"completion\""));
}

}  // namespace tessera::text
