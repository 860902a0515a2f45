#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/text/bpe/character_bpe.h>
#include <tessera/text/bpe/merges_json.h>
#include <tessera/text/pipeline/pipeline_json.h>
#include <tessera/text/pipeline/simple_models.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/unigram/unigram.h>

namespace tessera::text {
namespace {

using Ids = std::unordered_map<std::string, std::int32_t>;

void read_spellings(const Value& vocabulary, TokenTable& table, Ids& ids) {
  for (const auto& [spelling, id] : vocabulary.members()) {
    table.add(spelling, spelling, id);
    ids.emplace(spelling, static_cast<std::int32_t>(id.as_int()));
  }
}

std::string member_text(const Value& model, const char* key) {
  const Value* value = model.find(key);
  return is_set(value) ? value->as_string() : "";
}

std::optional<std::int32_t> unknown_id(const Value& model, const Ids& ids) {
  const Value* token = model.find("unk_token");
  if (!is_set(token)) return std::nullopt;
  const auto found = ids.find(token->as_string());
  return found == ids.end() ? std::nullopt : std::optional(found->second);
}

[[noreturn]] void refuse_unknown(const Value& model) {
  const Value& token = model.at("unk_token");
  throw InputError(concat(token.where().str(), ": the unk_token \"", token.as_string(), "\" is not in the vocabulary"));
}

bool has_all_bytes(const Ids& ids) {
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (std::size_t byte = 0; byte < 256; ++byte)
    if (!ids.contains(std::string("<0x") + digits[byte >> 4] + digits[byte & 15] + '>')) return false;
  return true;
}

std::unique_ptr<const WordModel> read_bpe(const Value& model, const Ids& ids) {
  if (const Value* dropout = model.find("dropout"); is_set(dropout) && dropout->as_real() != 0)
    throw InputError(concat(dropout->where().str(), ": BPE dropout is not supported: set it to null"));
  CharacterBpeParts parts;
  parts.continuing_prefix = member_text(model, "continuing_subword_prefix");
  parts.end_suffix = member_text(model, "end_of_word_suffix");
  parts.fuse_unknown = read_flag(model, "fuse_unk", false);
  parts.byte_fallback = read_flag(model, "byte_fallback", false);
  parts.ignore_merges = read_flag(model, "ignore_merges", false);
  parts.unknown = unknown_id(model, ids);
  const bool all_known = parts.byte_fallback && has_all_bytes(ids);
  if (!parts.unknown && !all_known) {
    if (is_set(model.find("unk_token"))) refuse_unknown(model);
    log::warning(model.where().str(),
                 ": the model has no unk_token: characters missing from the vocabulary are dropped");
  }
  for_each_merge(model.at("merges"), [&](std::string left, std::string right, const Value& at) {
    if (!right.starts_with(parts.continuing_prefix))
      throw InputError(concat(at.where().str(), ": the second token of the merge, \"", right,
                              "\", does not begin with the continuing_subword_prefix \"", parts.continuing_prefix,
                              "\""));
    const auto id_of = [&](const std::string& spelling) { return merge_token(spelling, ids, at); };
    parts.merges.push_back({id_of(left), id_of(right), id_of(left + right.substr(parts.continuing_prefix.size()))});
    parts.spelt.emplace_back(std::move(left), std::move(right));
  });
  parts.ids = ids;
  return std::make_unique<CharacterBpe>(std::move(parts));
}

std::unique_ptr<const WordModel> read_unigram(const Value& model, TokenTable& table, Ids& ids) {
  UnigramParts parts;
  for (const Value& piece : model.at("vocab").items()) {
    if (piece.items().size() != 2) throw InputError(concat(piece.where().str(), ": expected [piece, score]"));
    const std::string& spelling = piece.items()[0].as_string();
    const double score = piece.items()[1].as_real();
    table.add_next(spelling, piece);
    ids.insert_or_assign(spelling, static_cast<std::int32_t>(parts.pieces.size()));
    parts.pieces.emplace_back(spelling, score);
  }
  parts.byte_fallback = read_flag(model, "byte_fallback", false);
  if (const Value* id = model.find("unk_id"); is_set(id)) {
    if (id->as_int() < 0 || id->as_int() >= static_cast<std::int64_t>(parts.pieces.size()))
      throw InputError(
          concat(id->where().str(), ": unk_id ", id->as_int(), " is outside the ", parts.pieces.size(), " pieces"));
    parts.unknown = static_cast<std::int32_t>(id->as_int());
  }
  return std::make_unique<Unigram>(parts);
}

std::unique_ptr<const WordModel> read_wordpiece_model(const Value& model, const Ids& ids) {
  const auto unknown = unknown_id(model, ids);
  if (!unknown) refuse_unknown(model);
  const Value* most = model.find("max_input_chars_per_word");
  const Value* prefix = model.find("continuing_subword_prefix");
  if (is_set(most) && most->as_int() < 0)
    throw InputError(concat(most->where().str(), ": max_input_chars_per_word ", most->as_int(), " is negative"));
  WordPiece words(*unknown, is_set(prefix) ? prefix->as_string() : "##", is_set(most) ? most->as_int() : 100);
  for (const auto& [spelling, id] : ids) words.add(spelling, id);
  return std::make_unique<WordPieceModel>(std::move(words));
}

}  // namespace

std::string model_type(const Value& model) {
  if (const Value* type = model.find("type"); is_set(type)) return type->as_string();
  if (model.find("merges") != nullptr) return "BPE";
  if (model.at("vocab").is_array()) return "Unigram";
  return model.find("max_input_chars_per_word") != nullptr ? "WordPiece" : "WordLevel";
}

std::unique_ptr<const WordModel> read_word_model(const Value& model, TokenTable& table, Ids& ids) {
  const std::string type = model_type(model);
  if (type == "Unigram") return read_unigram(model, table, ids);
  if (type != "BPE" && type != "WordLevel" && type != "WordPiece")
    refuse_component(model, "model", "BPE, Unigram, WordLevel, WordPiece");
  read_spellings(model.at("vocab"), table, ids);
  if (type == "BPE") return read_bpe(model, ids);
  if (type == "WordPiece") return read_wordpiece_model(model, ids);
  return std::make_unique<WordLevelModel>(ids, unknown_id(model, ids));
}

}  // namespace tessera::text
