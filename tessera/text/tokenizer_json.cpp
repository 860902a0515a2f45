#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/text/bpe/bpe_tokenizer.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/bpe/merges_json.h>
#include <tessera/text/pipeline/pipeline_json.h>
#include <tessera/text/token_table.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/wordpiece/wordpiece_json.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace tessera::text {
namespace {

/// Whether the faster byte-level BPE tokenizer supports this file.
bool is_byte_level_bpe(const Value& root) {
  const Value& model = root.at("model");
  if (model_type(model) != "BPE") return false;
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const Value* value = model.find(key); is_set(value) && !value->as_string().empty()) return false;
  if (read_flag(model, "byte_fallback", false)) return false;
  return is_byte_level_pre_tokenizer(member_or_null(root, "pre_tokenizer")) &&
         is_byte_level_decoder(member_or_null(root, "decoder"));
}

void check_dropout(const Value& model) {
  if (const Value* dropout = model.find("dropout"); is_set(dropout) && dropout->as_real() != 0)
    throw InputError(concat(dropout->where().str(), ": BPE dropout is not supported: set it to null"));
}

class Reader {
 public:
  explicit Reader(const Value& root) : root_(root), table_(root) {}

  BpeParts read(std::string json, std::string config_json) {
    const Value& model = root_.at("model");
    check_dropout(model);
    note_what_is_not_applied(root_);
    BpeParts parts;
    parts.normalizer = read_normalizer(member_or_null(root_, "normalizer"));
    parts.pre_tokenizer = read_pre_tokenizer(root_.at("pre_tokenizer"));
    read_vocabulary(model.at("vocab"), parts);
    parts.byte_ids = byte_ids_;
    parts.unknown = read_unknown(model);
    parts.merges = read_merges(model.at("merges"));
    parts.ignore_merges = read_flag(model, "ignore_merges", false);
    parts.added = table_.read_added_tokens();
    PostProcessor post = read_post_processor(member_or_null(root_, "post_processor"), table_.size());
    parts.prefix = std::move(post.prefix);
    parts.suffix = std::move(post.suffix);
    parts.bytes_of_id = std::move(table_.contents);
    parts.has_token = std::move(table_.exists);
    parts.json = std::move(json);
    parts.config_json = std::move(config_json);
    return parts;
  }

 private:
  /// The replacement for bytes missing from the vocabulary. As in Hugging Face, it is unk_token if there is one;
  /// otherwise such bytes are dropped, with a warning.
  BpeModel::Unknown read_unknown(const Value& model) const {
    const auto missing = std::count(byte_ids_.begin(), byte_ids_.end(), BpeModel::no_token);
    if (missing == 0) return {};
    if (const Value* unk = model.find("unk_token"); is_set(unk)) {
      const auto known = table_.id_of(unk->as_string());
      if (!known)
        throw InputError(concat(unk->where().str(), ": the unk_token \"", unk->as_string(),
                                "\" is not in the vocabulary, which lacks ", missing, " of the 256 bytes"));
      return {*known, read_flag(model, "fuse_unk", false)};
    }
    log::warning(model.at("vocab").where().str(), ": the vocabulary lacks ", missing,
                 " of the 256 bytes: they are dropped from texts");
    return {};
  }

  void read_vocabulary(const Value& vocabulary, BpeParts& parts) {
    const ByteAlphabet& alphabet = ByteAlphabet::get();
    for (const auto& [spelling, id] : vocabulary.members()) {
      // a spelling outside the alphabet can only be an added token, taken literally
      const auto bytes = alphabet.bytes(spelling);
      table_.add(spelling, bytes.value_or(spelling), id);
      (bytes ? parts.ids_of_bytes : parts.other_ids)
          .emplace(bytes.value_or(spelling), static_cast<std::int32_t>(id.as_int()));
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      byte_ids_[byte] =
          table_.id_of(alphabet.spell(std::string(1, static_cast<char>(byte)))).value_or(BpeModel::no_token);
    }
  }

  std::int32_t id_of(const std::string& spelling, const Value& at) const {
    const auto found = table_.id_of(spelling);
    if (!found)
      throw InputError(
          concat(at.where().str(), ": the merge needs the token \"", spelling, "\", which is not in the vocabulary"));
    return *found;
  }

  std::vector<Merge> read_merges(const Value& list) const {
    std::vector<Merge> merges;
    for_each_merge(list, [&](const std::string& left, const std::string& right, const Value& at) {
      merges.push_back({id_of(left, at), id_of(right, at), id_of(left + right, at)});
    });
    return merges;
  }

  const Value& root_;
  TokenTable table_;
  std::array<std::int32_t, 256> byte_ids_{};
};

/// Returns the id of tokenizer_config.json's eos_token; warns of tokens there that tokenizer.json does not have.
template <class IdOf>
std::optional<std::int32_t> read_config(const std::string& json, const std::string& tokenizer_path, const IdOf& id_of) {
  const std::filesystem::path beside = std::filesystem::path(tokenizer_path).parent_path() / "tokenizer_config.json";
  const Value root = parse_json(json, beside.string());
  std::optional<std::int32_t> end_of_turn;
  if (const Value* eos = root.find("eos_token"); is_set(eos)) {
    const std::string& content = token_content(*eos);
    end_of_turn = id_of(content);
    if (!end_of_turn)
      log::warning(eos->where().str(), ": the eos_token \"", content, "\" is not in tokenizer.json and is not used");
  }
  if (const Value* list = root.find("added_tokens_decoder"); is_set(list)) {
    for (const auto& [id, token] : list->members()) {
      const std::string& content = token.at("content").as_string();
      if (const auto known = id_of(content); !known || std::to_string(*known) != id)
        log::warning(token.where().str(), ": added_tokens_decoder has \"", content, "\" with id ", id,
                     ", but tokenizer.json does not: it is not used");
    }
  }
  return end_of_turn;
}

/// Looks up a content among the added tokens, then in the vocabularies.
auto lookup(const std::vector<AddedToken>& added,
            std::vector<const std::unordered_map<std::string, std::int32_t>*> vocabularies) {
  return [&added, vocabularies = std::move(vocabularies)](const std::string& content) -> std::optional<std::int32_t> {
    for (const AddedToken& token : added)
      if (token.content == content) return token.id;
    for (const auto* ids : vocabularies)
      if (const auto found = ids->find(content); found != ids->end()) return found->second;
    return std::nullopt;
  };
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_tokenizer_json(std::string text, const std::string& path,
                                                      std::string config_json) {
  const Value root = parse_json(text, path);
  if (is_bert_wordpiece(root)) return read_wordpiece(root, std::move(text), path, std::move(config_json));
  if (!is_byte_level_bpe(root)) {
    PipelineParts parts = read_pipeline(root);
    if (!config_json.empty()) parts.end_of_turn = read_config(config_json, path, lookup(parts.added, {&parts.ids}));
    parts.json = std::move(text);
    parts.config_json = std::move(config_json);
    return make_pipeline_tokenizer(std::move(parts), path);
  }
  BpeParts parts = Reader(root).read(std::move(text), std::move(config_json));
  if (!parts.config_json.empty())
    parts.end_of_turn =
        read_config(parts.config_json, path, lookup(parts.added, {&parts.ids_of_bytes, &parts.other_ids}));
  return make_bpe_tokenizer(std::move(parts), path);
}

}  // namespace tessera::text
