#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/text/token_table.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/unicode/utf8.h>
#include <tessera/text/wordpiece/wordpiece_json.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <utility>

namespace tessera::text {
namespace {

constexpr std::int64_t most_word_characters = 100;  // the default, as in BERT
constexpr std::array<std::pair<const char*, const char*>, 5> special_roles{{{"unk_token", "[UNK]"},
                                                                            {"sep_token", "[SEP]"},
                                                                            {"pad_token", "[PAD]"},
                                                                            {"cls_token", "[CLS]"},
                                                                            {"mask_token", "[MASK]"}}};

std::string config_path_beside(const std::string& path) {
  return (std::filesystem::path(path).parent_path() / "tokenizer_config.json").string();
}

/// The token of a role, from tokenizer_config.json or BERT's defaults.
std::string role_content(const Value& config, const char* role, const char* by_default) {
  const Value* given = config.is_object() ? config.find(role) : nullptr;
  return is_set(given) ? token_content(*given) : by_default;
}

WordPieceDecoder read_wordpiece_decoder(const Value& value) {
  WordPieceDecoder decoder;
  if (value.is_null()) {
    decoder.joins = false;
    return decoder;
  }
  if (const Value* prefix = value.find("prefix"); is_set(prefix)) decoder.prefix = prefix->as_string();
  decoder.cleanup = read_flag(value, "cleanup", true);
  return decoder;
}

/// The normalizer with the settings of tokenizer_config.json applied.
Value with_config(Value normalizer, const Value& config) {
  if (!normalizer.is_object() || normalizer.at("type").as_string() != "BertNormalizer" || !config.is_object())
    return normalizer;
  static constexpr std::array<std::pair<const char*, const char*>, 3> names{
      {{"do_lower_case", "lowercase"},
       {"strip_accents", "strip_accents"},
       {"tokenize_chinese_chars", "handle_chinese_chars"}}};
  for (const auto& [ours, theirs] : names) {
    const Value* given = config.find(ours);
    if (!is_set(given)) continue;
    const Value* there = normalizer.find(theirs);
    if (is_set(there) && there->as_bool() == given->as_bool()) continue;
    if (is_set(there))
      log::info(given->where().str(), ": \"", ours, "\" differs from the normalizer of tokenizer.json (",
                there->where().str(), ") and replaces it, as in transformers");
    normalizer.set(theirs, Value::of(given->as_bool()));
  }
  return normalizer;
}

WordPieceParts read_parts(const Value& root, const Value& config) {
  const Value& model = root.at("model");
  const Value& unk = model.at("unk_token");
  const Value* most = model.find("max_input_chars_per_word");
  const Value* prefix = model.find("continuing_subword_prefix");
  note_what_is_not_applied(root);

  TokenTable table(root);
  std::unordered_map<std::string, std::int32_t> ids;
  for (const auto& [spelling, id] : model.at("vocab").members()) {
    table.add(spelling, spelling, id);
    ids.emplace(spelling, static_cast<std::int32_t>(id.as_int()));
  }
  const auto unknown = table.id_of(unk.as_string());
  if (!unknown)
    throw InputError(concat(unk.where().str(), ": the unk_token \"", unk.as_string(), "\" is not in the vocabulary"));
  if (is_set(most) && most->as_int() < 0)
    throw InputError(concat(most->where().str(), ": max_input_chars_per_word ", most->as_int(), " is negative"));

  WordPieceParts parts(WordPiece(*unknown, is_set(prefix) ? prefix->as_string() : "##",
                                 is_set(most) ? most->as_int() : most_word_characters));
  parts.decoder = read_wordpiece_decoder(member_or_null(root, "decoder"));
  for (const auto& [spelling, id] : ids) parts.model.add(spelling, id);
  parts.normalizer = read_normalizer(with_config(member_or_null(root, "normalizer"), config));
  parts.added = table.read_added_tokens();
  parts.post_processor = read_post_processor(member_or_null(root, "post_processor"), table.size());
  parts.ids = std::move(ids);
  parts.contents = std::move(table.contents);
  parts.exists = std::move(table.exists);

  const auto of_role = [&](std::size_t role) -> std::optional<std::int32_t> {
    const std::string content = role_content(config, special_roles[role].first, special_roles[role].second);
    for (const AddedToken& token : parts.added)
      if (token.content == content) return token.id;
    const auto found = parts.ids.find(content);
    return found == parts.ids.end() ? std::nullopt : std::optional(found->second);
  };
  parts.special = {.cls = of_role(3), .sep = of_role(1), .pad = of_role(2), .mask = of_role(4), .unknown = unknown};
  return parts;
}

/// The tokenizer_config.json that transformers needs in addition to tokenizer.json to build the same tokenizer.
std::string config_of(const Value& normalizer) {
  const bool bert = normalizer.is_object() && normalizer.at("type").as_string() == "BertNormalizer";
  Value config =
      Value::make_object({{"tokenizer_class", Value::of(bert ? "BertTokenizer" : "PreTrainedTokenizerFast")}});
  if (bert) {
    config.set("do_lower_case", Value::of(read_flag(normalizer, "lowercase", true)));
    config.set("tokenize_chinese_chars", Value::of(read_flag(normalizer, "handle_chinese_chars", true)));
    config.set("strip_accents", member_or_null(normalizer, "strip_accents"));
  }
  for (const auto& [role, content] : special_roles) config.set(role, Value::of(content));
  return dump_json(config) + "\n";
}

}  // namespace

bool is_bert_wordpiece(const Value& root) {
  const auto has_type = [](const Value& value, const char* type) {
    const Value* found = value.is_object() ? value.find("type") : nullptr;
    return is_set(found) && found->as_string() == type;
  };
  const Value& decoder = member_or_null(root, "decoder");
  return has_type(root.at("model"), "WordPiece") &&
         has_type(member_or_null(root, "pre_tokenizer"), "BertPreTokenizer") &&
         (decoder.is_null() || has_type(decoder, "WordPiece"));
}

std::shared_ptr<const Tokenizer> read_wordpiece(const Value& root, std::string text, const std::string& path,
                                                std::string config_json) {
  const Value config = config_json.empty() ? Value() : parse_json(config_json, config_path_beside(path));
  WordPieceParts parts = read_parts(root, config);
  parts.json = std::move(text);
  parts.config_json = config_json.empty() ? config_of(member_or_null(root, "normalizer")) : std::move(config_json);
  try {
    return std::make_shared<WordPieceTokenizer>(std::move(parts));
  } catch (const InputError& error) {
    throw InputError(concat(path, ": ", error.what()));
  }
}

std::string tokenizer_json_of_vocabulary(std::string_view vocabulary, const std::string& path,
                                         const std::string& config_json, const std::string& config_path) {
  if (!is_utf8(vocabulary)) throw InputError(concat(path, ": a vocabulary must be UTF-8"));
  const Value config = config_json.empty() ? Value() : parse_json(config_json, config_path);
  std::map<std::string, std::int64_t> ids;  // if lines are equal, the last one counts, as in transformers
  std::int64_t lines = 0;
  while (!vocabulary.empty()) {
    const std::size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
    std::string_view line = vocabulary.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    ids[std::string(line)] = lines++;
    vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
  }
  std::vector<std::pair<std::int64_t, std::string>> in_order;
  for (const auto& [token, id] : ids) in_order.emplace_back(id, token);
  std::sort(in_order.begin(), in_order.end());
  std::vector<Value::Member> members;
  for (const auto& [id, token] : in_order) members.emplace_back(token, Value::of(id));

  std::vector<Value> added;
  std::array<std::pair<std::string, std::int64_t>, special_roles.size()> roles;
  for (std::size_t i = 0; i < special_roles.size(); ++i) {
    const std::string content = role_content(config, special_roles[i].first, special_roles[i].second);
    const auto found = ids.find(content);
    if (found == ids.end())
      throw InputError(concat(
          path, ": the ", special_roles[i].first, " \"", content, "\" is not among its ", lines,
          " lines; a WordPiece vocabulary must contain all special tokens (tokenizer_config.json may rename them)"));
    roles[i] = {content, found->second};
  }
  std::sort(roles.begin(), roles.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const auto object = [](std::vector<Value::Member> m) { return Value::make_object(std::move(m)); };
  for (const auto& [content, id] : roles)
    added.push_back(object({{"id", Value::of(id)},
                            {"content", Value::of(content)},
                            {"single_word", Value::of(false)},
                            {"lstrip", Value::of(false)},
                            {"rstrip", Value::of(false)},
                            {"normalized", Value::of(false)},
                            {"special", Value::of(true)}}));
  const auto pair_of = [&](std::size_t role) {
    const std::string content = role_content(config, special_roles[role].first, special_roles[role].second);
    return Value::make_array({Value::of(content), Value::of(ids.at(content))});
  };
  const auto flag = [&](const char* key) {
    const Value* given = config.is_object() ? config.find(key) : nullptr;
    return Value::of(is_set(given) ? given->as_bool() : true);
  };
  const Value* accents = config.is_object() ? config.find("strip_accents") : nullptr;
  return dump_json(object(
      {{"version", Value::of("1.0")},
       {"truncation", Value()},
       {"padding", Value()},
       {"added_tokens", Value::make_array(std::move(added))},
       {"normalizer", object({{"type", Value::of("BertNormalizer")},
                              {"clean_text", Value::of(true)},
                              {"handle_chinese_chars", flag("tokenize_chinese_chars")},
                              {"strip_accents", is_set(accents) ? Value::of(accents->as_bool()) : Value()},
                              {"lowercase", flag("do_lower_case")}})},
       {"pre_tokenizer", object({{"type", Value::of("BertPreTokenizer")}})},
       {"post_processor", object({{"type", Value::of("BertProcessing")}, {"sep", pair_of(1)}, {"cls", pair_of(3)}})},
       {"decoder",
        object({{"type", Value::of("WordPiece")}, {"prefix", Value::of("##")}, {"cleanup", Value::of(true)}})},
       {"model",
        object({{"type", Value::of("WordPiece")},
                {"unk_token", Value::of(role_content(config, special_roles[0].first, special_roles[0].second))},
                {"continuing_subword_prefix", Value::of("##")},
                {"max_input_chars_per_word", Value::of(most_word_characters)},
                {"vocab", object(std::move(members))}})}}));
}

}  // namespace tessera::text
