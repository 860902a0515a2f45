#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/text/bpe_tokenizer.h>
#include <tessera/text/byte_alphabet.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/tokenizer_json.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace tessera::text {
namespace {

/// Ids count from 0 with few holes. Far above any real vocabulary; bounds what a small bad file can allocate.
std::int64_t most_ids(std::size_t tokens) {
  return std::min(std::int64_t{1} << 22, static_cast<std::int64_t>(tokens) * 16 + (1 << 16));
}

[[noreturn]] void refuse(const Value& at, const std::string& what) {
  throw InputError(concat(at.where().str(), ": ", what, " is not supported (byte-level BPE tokenizers are)"));
}

bool is_set(const Value* value) { return value != nullptr && !value->is_null(); }

const Value& member_or_null(const Value& object, std::string_view key) {
  static const Value null;
  const Value* value = object.find(key);
  return value != nullptr ? *value : null;
}

void check_model(const Value& model) {
  // GPT-2's own old files leave the type out
  if (const Value* type = model.find("type"); is_set(type) && type->as_string() != "BPE")
    refuse_component(model, "model", "BPE (byte-level)");
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const Value* value = model.find(key); is_set(value) && !value->as_string().empty())
      refuse(*value, concat("a BPE model with ", key));
  }
  if (const Value* dropout = model.find("dropout"); is_set(dropout) && dropout->as_real() != 0)
    refuse(*dropout, "BPE dropout");
}

/// tokenizers' own encode() applies them; transformers' tokenizers switch both off unless asked, as training wants it.
void note_what_is_not_applied(const Value& root) {
  for (const char* key : {"truncation", "padding"}) {
    if (const Value* value = root.find(key); is_set(value))
      log::info(value->where().str(), ": \"", key, "\" is not applied, as in transformers: texts are encoded whole");
  }
}

class Reader {
 public:
  explicit Reader(const Value& root) : root_(root) {}

  BpeParts read(std::string json, std::string config_json) {
    const Value& model = root_.at("model");
    check_model(model);
    check_decoder(member_or_null(root_, "decoder"));
    note_what_is_not_applied(root_);
    BpeParts parts;
    parts.normalizer = read_normalizer(member_or_null(root_, "normalizer"));
    parts.pre_tokenizer = read_pre_tokenizer(root_.at("pre_tokenizer"));
    read_vocabulary(model.at("vocab"), parts);
    parts.byte_ids = byte_ids_;
    parts.unknown = read_unknown(model);
    parts.merges = read_merges(model.at("merges"));
    parts.ignore_merges = read_flag(model, "ignore_merges", false);
    if (const Value* list = root_.find("added_tokens"); is_set(list)) parts.added = read_added_tokens(*list);
    PostProcessor post = read_post_processor(member_or_null(root_, "post_processor"), vocab_size());
    parts.prefix = std::move(post.prefix);
    parts.suffix = std::move(post.suffix);
    parts.bytes_of_id = std::move(bytes_of_);
    parts.has_token = std::move(exists_);
    parts.json = std::move(json);
    parts.config_json = std::move(config_json);
    return parts;
  }

 private:
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(exists_.size()); }

  /// What becomes of bytes that the vocabulary lacks. As Hugging Face does: unk_token if there is one, else nothing, which
  /// gets a warning.
  BpeModel::Unknown read_unknown(const Value& model) const {
    const auto missing = std::count(byte_ids_.begin(), byte_ids_.end(), BpeModel::no_token);
    if (missing == 0) return {};
    if (read_flag(model, "byte_fallback", false))
      refuse(model.at("byte_fallback"), concat("byte_fallback with a vocabulary that lacks ", missing,
                                               " of the 256 characters of the byte alphabet"));
    if (const Value* unk = model.find("unk_token"); is_set(unk)) {
      const auto known = ids_.find(unk->as_string());
      if (known == ids_.end())
        throw InputError(concat(unk->where().str(), ": the unk_token \"", unk->as_string(),
                                "\" is not in the vocabulary, which lacks ", missing, " of the 256 bytes"));
      return {known->second, read_flag(model, "fuse_unk", false)};
    }
    log::warning(model.at("vocab").where().str(), ": the vocabulary lacks ", missing,
                 " of the 256 bytes: they vanish from texts");
    return {};
  }

  void place(std::int64_t id, std::string bytes, const Value& at) {
    if (id < 0 || id >= most_ids_)
      throw InputError(concat(at.where().str(), ": token id ", id, " is outside [0, ", most_ids_,
                              "), which is ample for so many tokens"));
    const auto i = static_cast<std::size_t>(id);
    if (i >= bytes_of_.size()) {
      bytes_of_.resize(i + 1);
      exists_.resize(i + 1, false);
    }
    bytes_of_[i] = std::move(bytes);
    exists_[i] = true;
  }

  void read_vocabulary(const Value& vocabulary, BpeParts& parts) {
    const ByteAlphabet& alphabet = ByteAlphabet::get();
    const Value& added = member_or_null(root_, "added_tokens");
    most_ids_ = most_ids(vocabulary.members().size() + (added.is_null() ? 0 : added.items().size()));
    ids_.reserve(vocabulary.members().size());
    for (const auto& [spelling, id] : vocabulary.members()) {
      const std::int64_t number = id.as_int();
      if (number >= 0 && number < vocab_size() && exists_[static_cast<std::size_t>(number)])
        throw InputError(
            concat(id.where().str(), ": token id ", number, " is given twice, here for \"", spelling, "\""));
      // a spelling outside the alphabet can only be an added token: it stands for itself
      const auto bytes = alphabet.bytes(spelling);
      place(number, bytes.value_or(spelling), id);
      (bytes ? parts.ids_of_bytes : parts.other_ids).emplace(bytes.value_or(spelling), static_cast<std::int32_t>(number));
      ids_.emplace(spelling, static_cast<std::int32_t>(number));
    }
    for (std::size_t byte = 0; byte < 256; ++byte) {
      const auto found = ids_.find(alphabet.spell(std::string(1, static_cast<char>(byte))));
      byte_ids_[byte] = found == ids_.end() ? BpeModel::no_token : found->second;
    }
  }

  std::int32_t id_of(const std::string& spelling, const Value& at) const {
    const auto found = ids_.find(spelling);
    if (found == ids_.end())
      throw InputError(
          concat(at.where().str(), ": the merge needs the token \"", spelling, "\", which is not in the vocabulary"));
    return found->second;
  }

  std::vector<Merge> read_merges(const Value& list) const {
    std::vector<Merge> merges;
    for (const Value& merge : list.items()) {
      std::string left, right;
      if (merge.is_string()) {
        const std::string& text = merge.as_string();
        if (text.starts_with("#version")) continue;  // the first line of an old merges.txt
        const std::size_t blank = text.find(' ');
        if (blank == std::string::npos || text.find(' ', blank + 1) != std::string::npos)
          throw InputError(
              concat(merge.where().str(), ": expected two tokens with a blank between them, found \"", text, "\""));
        left = text.substr(0, blank);
        right = text.substr(blank + 1);
      } else {
        if (merge.items().size() != 2) throw InputError(concat(merge.where().str(), ": expected a pair of tokens"));
        left = merge.items()[0].as_string();
        right = merge.items()[1].as_string();
      }
      merges.push_back({id_of(left, merge), id_of(right, merge), id_of(left + right, merge)});
    }
    return merges;
  }

  std::vector<AddedToken> read_added_tokens(const Value& list) {
    std::vector<AddedToken> added;
    for (const Value& value : list.items()) {
      AddedToken token;
      token.content = value.at("content").as_string();
      if (token.content.empty()) throw InputError(concat(value.where().str(), ": an added token without content"));
      check_added_id(token.content, value.at("id"));
      place(value.at("id").as_int(), token.content, value.at("id"));
      token.id = static_cast<std::int32_t>(value.at("id").as_int());
      token.single_word = read_flag(value, "single_word", false);
      token.lstrip = read_flag(value, "lstrip", false);
      token.rstrip = read_flag(value, "rstrip", false);
      token.normalized = read_flag(value, "normalized", false);
      token.special = read_flag(value, "special", false);
      added.push_back(std::move(token));
    }
    return added;
  }

  /// An id that Hugging Face would not give this token, or that another token has, would change ids silently.
  void check_added_id(const std::string& content, const Value& id) const {
    const auto fail = [&](const std::string& why) {
      throw InputError(
          concat(id.where().str(), ": the added token \"", content, "\" has id ", id.as_int(), ", but ", why));
    };
    if (const auto known = ids_.find(content); known != ids_.end()) {
      if (known->second != id.as_int()) fail(concat("id ", known->second, " in the vocabulary"));
    } else if (id.as_int() >= 0 && id.as_int() < vocab_size() && exists_[static_cast<std::size_t>(id.as_int())]) {
      fail("another token has that id");
    }
  }

  const Value& root_;
  std::int64_t most_ids_ = 0;
  std::unordered_map<std::string, std::int32_t> ids_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::string> bytes_of_;
  std::vector<bool> exists_;
};

/// What tokenizer_config.json says that encoding must know.
void read_config(const std::string& json, const std::string& tokenizer_path, BpeParts& parts) {
  const std::filesystem::path beside = std::filesystem::path(tokenizer_path).parent_path() / "tokenizer_config.json";
  const Value root = parse_json(json, beside.string());
  const auto id_of = [&](const std::string& content) -> std::optional<std::int32_t> {
    for (const AddedToken& token : parts.added)
      if (token.content == content) return token.id;
    for (const auto* ids : {&parts.ids_of_bytes, &parts.other_ids})
      if (const auto found = ids->find(content); found != ids->end()) return found->second;
    return std::nullopt;
  };
  if (const Value* eos = root.find("eos_token"); is_set(eos)) {
    const std::string& content = eos->is_object() ? eos->at("content").as_string() : eos->as_string();
    parts.end_of_turn = id_of(content);
    if (!parts.end_of_turn)
      log::warning(eos->where().str(), ": the eos_token \"", content, "\" is not in tokenizer.json and is not used");
  }
  if (const Value* list = root.find("added_tokens_decoder"); is_set(list)) {
    for (const auto& [id, token] : list->members()) {
      const std::string& content = token.at("content").as_string();
      if (const auto known = id_of(content); !known || std::to_string(*known) != id)
        log::warning(token.where().str(), ": added_tokens_decoder has \"", content, "\" with id ", id,
                     ", tokenizer.json does not: it is not used");
    }
  }
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_tokenizer_json(std::string text, const std::string& path,
                                                      std::string config_json) {
  const Value root = parse_json(text, path);
  BpeParts parts = Reader(root).read(std::move(text), std::move(config_json));
  if (!parts.config_json.empty()) read_config(parts.config_json, path, parts);
  return make_bpe_tokenizer(std::move(parts), path);
}

}  // namespace tessera::text
