#include <tessera/base/error.h>
#include <tessera/text/sentencepiece/model_json.h>
#include <tessera/text/token_table.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/unicode/charsmap.h>

#include <algorithm>
#include <array>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace tessera::text {
namespace {

constexpr const char* blank = "\xE2\x96\x81";  // U+2581
using Type = SentencePiece::Type;

Value object(std::vector<Value::Member> members) { return Value::make_object(std::move(members)); }
Value typed(const char* type, std::vector<Value::Member> members = {}) {
  members.insert(members.begin(), {"type", Value::of(type)});
  return object(std::move(members));
}
Value steps(const char* name, std::vector<Value> list) {
  return typed("Sequence", {{name, Value::make_array(std::move(list))}});
}
Value replaced(const char* kind, const char* pattern, const char* by) {
  return typed("Replace", {{"pattern", object({{kind, Value::of(pattern)}})}, {"content", Value::of(by)}});
}

std::string class_of(const Value& config) {
  const Value* name = config.is_object() ? config.find("tokenizer_class") : nullptr;
  std::string text = is_set(name) ? name->as_string() : "";
  if (text.ends_with("Fast")) text.resize(text.size() - 4);
  return text;
}

/// These classes have a numbering of their own, which the file does not record.
void check_class(const Value& config, const std::string& path) {
  static constexpr std::array<const char*, 9> others{"XLMRobertaTokenizer", "CamembertTokenizer", "MBartTokenizer",
                                                     "MBart50Tokenizer",    "BarthezTokenizer",   "NllbTokenizer",
                                                     "PegasusTokenizer",    "BigBirdTokenizer",   "XLNetTokenizer"};
  const std::string name = class_of(config);
  for (const char* other : others)
    if (name == other)
      throw InputError(
          concat(path, ": a ", name,
                 " numbers the pieces of a SentencePiece model in its own way, which "
                 "the file does not record; save its tokenizer.json (save_pretrained of the fast tokenizer)"));
}

Value added_token(std::int64_t id, const std::string& content, bool special) {
  return object({{"id", Value::of(id)},
                 {"content", Value::of(content)},
                 {"single_word", Value::of(false)},
                 {"lstrip", Value::of(false)},
                 {"rstrip", Value::of(false)},
                 {"normalized", Value::of(false)},
                 {"special", Value::of(special)}});
}

/// Control, unknown and user-defined pieces, and the tokens that tokenizer_config.json adds or overrides, by id.
std::vector<Value> added_tokens(const SentencePieceModel& model, const Value& config) {
  std::unordered_map<std::int64_t, Value> by_id;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePiece& piece = model.pieces[i];
    const auto id = static_cast<std::int64_t>(i);
    if (piece.type == Type::control || piece.type == Type::unknown || piece.type == Type::user_defined)
      by_id[id] = added_token(id, piece.spelling, piece.type != Type::user_defined);
  }
  if (const Value* list = config.is_object() ? config.find("added_tokens_decoder") : nullptr; is_set(list)) {
    for (const auto& [key, token] : list->members()) {
      std::int64_t id = -1;
      const bool digits = !key.empty() && key.size() < 10 &&
                          std::all_of(key.begin(), key.end(), [](char c) { return c >= '0' && c <= '9'; });
      if (digits) id = std::stoll(key);
      if (id < 0) throw InputError(concat(token.where().str(), ": \"", key, "\" is not a token id"));
      Value made = added_token(id, token.at("content").as_string(), read_flag(token, "special", false));
      for (const char* flag : {"single_word", "lstrip", "rstrip", "normalized"})
        made.set(flag, Value::of(read_flag(token, flag, false)));
      by_id[id] = std::move(made);
    }
  }
  std::vector<std::pair<std::int64_t, Value>> sorted(by_id.begin(), by_id.end());
  std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Value> list;
  for (auto& [id, token] : sorted) list.push_back(std::move(token));
  return list;
}

Value normalizer_of(const SentencePieceModel& model) {
  std::vector<Value> list;
  if (!model.charsmap.empty())
    list.push_back(typed("Precompiled", {{"precompiled_charsmap", Value::of(encode_base64(model.charsmap))}}));
  if (model.remove_extra_whitespaces) {
    list.push_back(typed("Strip", {{"strip_left", Value::of(true)}, {"strip_right", Value::of(true)}}));
    list.push_back(replaced("Regex", " {2,}", " "));
  }
  if (model.add_dummy_prefix)
    list.push_back(typed("Prepend", {{"prepend", Value::of(model.escape_whitespaces ? blank : " ")}}));
  if (model.escape_whitespaces) list.push_back(replaced("String", " ", blank));
  return steps("normalizers", std::move(list));
}

Value decoder_of(const SentencePieceModel& model) {
  std::vector<Value> list{replaced("String", blank, " "), typed("ByteFallback"), typed("Fuse")};
  if (model.add_dummy_prefix)
    list.push_back(typed("Strip", {{"content", Value::of(" ")}, {"start", Value::of(1)}, {"stop", Value::of(0)}}));
  return steps("decoders", std::move(list));
}

Value post_processor_of(const SentencePieceModel& model, const Value& config) {
  const std::string name = class_of(config);
  const Value& said = config.is_object() ? config : Value::make_object();
  const auto in_range = [&](std::int64_t id) { return id >= 0 && id < static_cast<std::int64_t>(model.pieces.size()); };
  const bool llama = name == "LlamaTokenizer" || name == "GemmaTokenizer" ||
                     (name.empty() && model.kind == SentencePieceModel::Kind::bpe);
  const bool begins = read_flag(said, "add_bos_token", llama) && in_range(model.begin);
  const bool ends = read_flag(said, "add_eos_token", name == "T5Tokenizer") && in_range(model.end);
  std::vector<Value> single, pair;
  std::vector<Value::Member> specials;
  const auto special = [&](std::int64_t id, std::int64_t type) {
    return object({{"SpecialToken", object({{"id", Value::of(model.pieces[static_cast<std::size_t>(id)].spelling)},
                                            {"type_id", Value::of(type)}})}});
  };
  const auto text = [](const char* which, std::int64_t type) {
    return object({{"Sequence", object({{"id", Value::of(which)}, {"type_id", Value::of(type)}})}});
  };
  for (const std::int64_t second : {0, 1}) {
    if (begins) pair.push_back(special(model.begin, second));
    pair.push_back(text(second == 0 ? "A" : "B", second));
    if (ends) pair.push_back(special(model.end, second));
    if (second == 0) single = pair;
  }
  for (const std::int64_t id : {begins ? model.begin : -1, ends ? model.end : -1}) {
    if (id < 0) continue;
    const std::string& spelling = model.pieces[static_cast<std::size_t>(id)].spelling;
    if (!specials.empty() && specials.front().first == spelling) continue;
    specials.emplace_back(spelling, object({{"id", Value::of(spelling)},
                                            {"ids", Value::make_array({Value::of(id)})},
                                            {"tokens", Value::make_array({Value::of(spelling)})}}));
  }
  return typed("TemplateProcessing", {{"single", Value::make_array(std::move(single))},
                                      {"pair", Value::make_array(std::move(pair))},
                                      {"special_tokens", object(std::move(specials))}});
}

Value unigram_of(const SentencePieceModel& model) {
  std::vector<Value> pieces;
  for (const SentencePiece& piece : model.pieces)
    pieces.push_back(Value::make_array({Value::of(piece.spelling), Value::of(piece.score)}));
  const auto unknown = std::find_if(model.pieces.begin(), model.pieces.end(),
                                    [](const SentencePiece& piece) { return piece.type == Type::unknown; });
  return typed("Unigram", {{"unk_id", unknown == model.pieces.end()
                                          ? Value()
                                          : Value::of(static_cast<std::int64_t>(unknown - model.pieces.begin()))},
                           {"vocab", Value::make_array(std::move(pieces))},
                           {"byte_fallback", Value::of(model.byte_fallback)}});
}

struct RankedMerge {
  double score;
  std::size_t left, right;
  std::size_t cut;  ///< size of the left side in bytes
  std::size_t piece;
};

std::vector<Value> merges_of(const SentencePieceModel& model) {
  std::unordered_map<std::string_view, std::size_t> ids;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) ids.emplace(model.pieces[i].spelling, i);
  std::vector<RankedMerge> merges;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePiece& piece = model.pieces[i];
    if (piece.type != Type::normal && piece.type != Type::user_defined) continue;
    const std::string_view spelling = piece.spelling;
    for (std::size_t cut = 1; cut < spelling.size(); ++cut) {
      const auto left = ids.find(spelling.substr(0, cut));
      if (left == ids.end()) continue;
      const auto right = ids.find(spelling.substr(cut));
      if (right != ids.end()) merges.push_back({piece.score, left->second, right->second, cut, i});
    }
  }
  std::stable_sort(merges.begin(), merges.end(), [](const RankedMerge& a, const RankedMerge& b) {
    if (a.score != b.score) return a.score > b.score;
    return std::tie(a.piece, a.left, a.right) < std::tie(b.piece, b.left, b.right);
  });
  std::vector<Value> list;
  for (const RankedMerge& merge : merges)
    list.push_back(Value::make_array(
        {Value::of(model.pieces[merge.left].spelling), Value::of(model.pieces[merge.right].spelling)}));
  return list;
}

Value bpe_of(const SentencePieceModel& model, const std::string& path) {
  std::vector<Value::Member> vocabulary;
  std::unordered_map<std::string_view, std::size_t> ids;
  std::string unknown;
  for (std::size_t i = 0; i < model.pieces.size(); ++i) {
    const SentencePiece& piece = model.pieces[i];
    if (!ids.emplace(piece.spelling, i).second)
      throw InputError(
          concat(path, ": pieces ", ids[piece.spelling], " and ", i, " are both \"", piece.spelling, "\""));
    vocabulary.emplace_back(piece.spelling, Value::of(static_cast<std::int64_t>(i)));
    if (piece.type == Type::unknown) unknown = piece.spelling;
  }
  return typed("BPE", {{"dropout", Value()},
                       {"unk_token", unknown.empty() ? Value() : Value::of(unknown)},
                       {"continuing_subword_prefix", Value()},
                       {"end_of_word_suffix", Value()},
                       {"fuse_unk", Value::of(true)},
                       {"byte_fallback", Value::of(model.byte_fallback)},
                       {"ignore_merges", Value::of(false)},
                       {"vocab", object(std::move(vocabulary))},
                       {"merges", Value::make_array(merges_of(model))}});
}

}  // namespace

Value tokenizer_json_of(const SentencePieceModel& model, const Value& config, const std::string& path) {
  using Kind = SentencePieceModel::Kind;
  if (model.kind != Kind::unigram && model.kind != Kind::bpe)
    throw InputError(concat(path, ": a SentencePiece model of type ", model.kind == Kind::word ? "word" : "char",
                            " is not supported; supported are unigram and bpe"));
  if (model.blanks_end_words)
    throw InputError(concat(path, ": treat_whitespace_as_suffix is not supported (blanks begin words)"));
  check_class(config, path);
  return object({{"version", Value::of("1.0")},
                 {"truncation", Value()},
                 {"padding", Value()},
                 {"added_tokens", Value::make_array(added_tokens(model, config))},
                 {"normalizer", normalizer_of(model)},
                 {"pre_tokenizer", Value()},
                 {"post_processor", post_processor_of(model, config)},
                 {"decoder", decoder_of(model)},
                 {"model", model.kind == Kind::bpe ? bpe_of(model, path) : unigram_of(model)}});
}

}  // namespace tessera::text
