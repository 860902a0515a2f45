#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/text/bpe/bpe_files.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/token_table.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/charsmap.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

namespace tessera::text {
namespace {

using Ranks = std::unordered_map<std::string, std::int64_t>;

/// The word pattern of cl100k_base, with numbers of up to three digits.
constexpr const char* cl100k_words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|)"
    R"(\s+(?!\S)|\s+)";

Value byte_level(bool add_prefix_space, bool use_regex) {
  return Value::make_object({{"type", Value::of("ByteLevel")},
                             {"add_prefix_space", Value::of(add_prefix_space)},
                             {"trim_offsets", Value::of(true)},
                             {"use_regex", Value::of(use_regex)}});
}

/// Removes the next line from a text and returns it without its line end.
std::optional<std::string_view> next_line(std::string_view& rest) {
  if (rest.empty()) return std::nullopt;
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  std::string_view line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// The added tokens of tokenizer_config.json, and those of its special tokens by role that are in the vocabulary, by
/// id.
std::vector<Value> special_tokens(const Value& config, const Value* vocabulary) {
  std::map<std::int64_t, Value> by_id;
  const auto add = [&](std::int64_t id, const std::string& content, const Value* flags) {
    Value made = Value::make_object({{"id", Value::of(id)}, {"content", Value::of(content)}});
    for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"})
      made.set(flag, Value::of(flags != nullptr && read_flag(*flags, flag, false)));
    made.set("special", Value::of(flags == nullptr || read_flag(*flags, "special", false)));
    by_id.insert_or_assign(id, std::move(made));
  };
  if (!config.is_object()) return {};
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const Value* token = config.find(role);
    if (!is_set(token) || vocabulary == nullptr) continue;
    if (const Value* id = vocabulary->find(token_content(*token)))
      add(id->as_int(), token_content(*token), token->is_object() ? token : nullptr);
  }
  if (const Value* list = config.find("added_tokens_decoder"); is_set(list)) {
    for (const auto& [key, token] : list->members()) {
      std::int64_t id = -1;
      const auto [end, error] = std::from_chars(key.data(), key.data() + key.size(), id);
      if (error != std::errc() || end != key.data() + key.size() || id < 0)
        throw InputError(concat(token.where().str(), ": \"", key, "\" is not a token id"));
      add(id, token.at("content").as_string(), &token);
    }
  }
  std::vector<Value> sorted;
  for (auto& [id, token] : by_id) sorted.push_back(std::move(token));
  return sorted;
}

Value around_texts(const Value& config, const Value& vocabulary) {
  const Value* name = config.is_object() ? config.find("tokenizer_class") : nullptr;
  if (!is_set(name) || !name->as_string().starts_with("Roberta")) return {};
  const auto special = [&](const char* role, const char* by_default) {
    const Value* token = config.find(role);
    const std::string content = is_set(token) ? token_content(*token) : by_default;
    return Value::make_array({Value::of(content), vocabulary.at(content)});
  };
  return Value::make_object({{"type", Value::of("RobertaProcessing")},
                             {"sep", special("sep_token", "</s>")},
                             {"cls", special("cls_token", "<s>")},
                             {"trim_offsets", Value::of(true)},
                             {"add_prefix_space", Value::of(true)}});
}

Ranks read_ranks(std::string_view lines, const std::string& path) {
  Ranks ranks;
  std::int64_t number = 0;
  while (const auto line = next_line(lines)) {
    ++number;
    if (line->empty()) continue;
    const std::string where = concat(path, ":", number);
    const std::size_t blank = line->find(' ');
    std::int64_t rank = -1;
    if (blank != std::string_view::npos)
      if (const auto [end, error] = std::from_chars(line->data() + blank + 1, line->data() + line->size(), rank);
          error != std::errc() || end != line->data() + line->size())
        rank = -1;
    if (rank < 0) throw InputError(concat(where, ": expected a token in base64, a blank and its rank"));
    const std::string token = decode_base64(line->substr(0, blank), where);
    if (token.empty()) throw InputError(concat(where, ": an empty token"));
    if (!ranks.emplace(token, rank).second) throw InputError(concat(where, ": this token already has a rank"));
  }
  if (ranks.empty()) throw InputError(concat(path, ": the file contains no tokens"));
  return ranks;
}

/// The two parts that remain of a token after byte-pair encoding with only the ranks below its own; nullopt if there
/// are not exactly two.
std::optional<std::pair<std::string, std::string>> last_merge(const std::string& token, std::int64_t rank,
                                                              const Ranks& ranks) {
  std::vector<std::string> parts;
  for (const char byte : token) parts.emplace_back(1, byte);
  while (parts.size() > 2) {
    std::int64_t best = rank;
    std::size_t at = parts.size();
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find(parts[i] + parts[i + 1]);
      if (found == ranks.end() || found->second >= best) continue;
      best = found->second;
      at = i;
    }
    if (at == parts.size()) return std::nullopt;
    parts[at] += parts[at + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
  if (parts.size() != 2) return std::nullopt;
  return std::pair(parts[0], parts[1]);
}

}  // namespace

Value tokenizer_json_of_merges(const Value& vocabulary, std::string_view merges, const Value& config,
                               const std::string& folder) {
  if (!is_utf8(merges)) throw InputError(concat(folder, "/merges.txt is not UTF-8"));
  BpeDocument parts;
  std::int64_t number = 0;
  while (const auto line = next_line(merges)) {
    ++number;
    if (line->empty() || line->starts_with("#version")) continue;
    const std::size_t blank = line->find(' ');
    if (blank == std::string_view::npos || line->find(' ', blank + 1) != std::string_view::npos)
      throw InputError(concat(folder, "/merges.txt:", number, ": expected two tokens with a blank between them"));
    parts.merges.push_back(Value::make_array(
        {Value::of(std::string(line->substr(0, blank))), Value::of(std::string(line->substr(blank + 1)))}));
  }
  const bool prefix = config.is_object() && read_flag(config, "add_prefix_space", false);
  parts.added_tokens = special_tokens(config, &vocabulary);
  parts.pre_tokenizer = byte_level(prefix, true);
  parts.post_processor = around_texts(config, vocabulary);
  parts.decoder = byte_level(true, true);
  parts.vocabulary = vocabulary.members();
  return tokenizer_document(std::move(parts));
}

bool looks_like_tiktoken(std::string_view bytes) {
  const auto line = next_line(bytes);
  if (!line || line->size() > 4096) return false;
  const std::size_t blank = line->find(' ');
  if (blank == std::string_view::npos || blank == 0 || blank % 4 != 0 || blank + 1 == line->size()) return false;
  const auto number = line->substr(blank + 1);
  return std::all_of(number.begin(), number.end(), [](char c) { return c >= '0' && c <= '9'; });
}

Value tokenizer_json_of_tiktoken(std::string_view lines, const Value& config, const std::string& path) {
  const Ranks ranks = read_ranks(lines, path);
  std::vector<std::pair<std::int64_t, std::string>> sorted;
  for (const auto& [token, rank] : ranks) sorted.emplace_back(rank, token);
  std::sort(sorted.begin(), sorted.end());
  const ByteAlphabet& alphabet = ByteAlphabet::get();
  BpeDocument parts;
  constexpr std::size_t longest = 256;  // real tokens have up to 128 bytes; splitting one takes time cubic in its size
  for (const auto& [rank, token] : sorted) {
    if (token.size() > longest)
      throw InputError(concat(path, ": the token of rank ", rank, " has ", token.size(), " bytes; at most ", longest));
    parts.vocabulary.emplace_back(alphabet.spell(token), Value::of(rank));
    if (token.size() < 2) continue;
    if (const auto pair = last_merge(token, rank, ranks);
        pair && ranks.contains(pair->first) && ranks.contains(pair->second))
      parts.merges.push_back(
          Value::make_array({Value::of(alphabet.spell(pair->first)), Value::of(alphabet.spell(pair->second))}));
  }
  parts.added_tokens = special_tokens(config, nullptr);
  parts.ignore_merges = true;  // in tiktoken, a word that is itself a token becomes that token
  Value words = Value::make_object({{"type", Value::of("Split")},
                                    {"pattern", Value::make_object({{"Regex", Value::of(cl100k_words)}})},
                                    {"behavior", Value::of("Isolated")},
                                    {"invert", Value::of(false)}});
  parts.pre_tokenizer =
      Value::make_object({{"type", Value::of("Sequence")},
                          {"pretokenizers", Value::make_array({std::move(words), byte_level(false, false)})}});
  parts.decoder = byte_level(true, true);
  return tokenizer_document(std::move(parts));
}

}  // namespace tessera::text
