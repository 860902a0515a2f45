#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/log.h>
#include <tessera/text/bpe_tokenizer.h>
#include <tessera/text/byte_alphabet.h>
#include <tessera/text/tokenizer_json.h>

#include <algorithm>
#include <array>

namespace tessera::text {
namespace {

constexpr std::int64_t most_ids = std::int64_t{1}
                                  << 22;  // far above any vocabulary; bounds what a bad file can allocate

[[noreturn]] void refuse(const Value& at, const std::string& what) {
  throw InputError(concat(at.where().str(), ": ", what, " is not supported (byte-level BPE tokenizers are)"));
}

bool is_set(const Value* value) { return value != nullptr && !value->is_null(); }

bool flag(const Value& object, std::string_view key, bool by_default) {
  const Value* value = object.find(key);
  return is_set(value) ? value->as_bool() : by_default;
}

const std::string& type_of(const Value& component) { return component.at("type").as_string(); }

/// {"type": "ByteLevel"}, or Split by a pattern followed by ByteLevel without its own, as Llama-3 and Qwen have it.
WordRule read_pre_tokenizer(const Value& value) {
  WordRule rule;
  if (value.is_null()) refuse(value, "a tokenizer without a pre_tokenizer");
  if (type_of(value) == "ByteLevel") {
    rule.add_prefix_space = flag(value, "add_prefix_space", true);
    rule.gpt2_pattern = flag(value, "use_regex", true);
    return rule;
  }
  if (type_of(value) != "Sequence") refuse(value.at("type"), concat("the pre_tokenizer ", type_of(value)));
  const auto& parts = value.at("pretokenizers").items();
  if (parts.size() != 2 || type_of(parts[0]) != "Split" || type_of(parts[1]) != "ByteLevel")
    refuse(value, "a pre_tokenizer Sequence other than Split, ByteLevel");
  const Value& split = parts[0];
  const Value* regex = split.at("pattern").find("Regex");
  if (regex == nullptr) refuse(split.at("pattern"), "a Split pattern other than a Regex");
  if (split.at("behavior").as_string() != "Isolated")
    refuse(split.at("behavior"), concat("the Split behavior ", split.at("behavior").as_string()));
  if (flag(split, "invert", false)) refuse(split, "an inverted Split");
  if (flag(parts[1], "add_prefix_space", true) || flag(parts[1], "use_regex", true))
    refuse(parts[1], "ByteLevel with add_prefix_space or use_regex after a Split");
  rule.gpt2_pattern = false;
  rule.pattern.emplace(regex->as_string(), regex->where().str());
  return rule;
}

/// Only what would change the ids of a text must be known; post-processors add special tokens, which encode() never
/// does.
void check_other_components(const Value& root) {
  if (const Value* normalizer = root.find("normalizer"); is_set(normalizer))
    refuse(*normalizer, concat("the normalizer ", type_of(*normalizer)));
  if (const Value* decoder = root.find("decoder"); is_set(decoder) && type_of(*decoder) != "ByteLevel")
    refuse(*decoder, concat("the decoder ", type_of(*decoder)));
  static const std::vector<std::string> known = {"ByteLevel", "TemplateProcessing", "RobertaProcessing",
                                                 "BertProcessing", "Sequence"};
  if (const Value* post = root.find("post_processor");
      is_set(post) && std::find(known.begin(), known.end(), type_of(*post)) == known.end())
    refuse(*post, concat("the post_processor ", type_of(*post)));
}

void check_model(const Value& model) {
  // GPT-2's own old files leave the type out
  if (const Value* type = model.find("type"); is_set(type) && type->as_string() != "BPE")
    refuse(*type, concat("the model ", type->as_string()));
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (const Value* value = model.find(key); is_set(value) && !value->as_string().empty())
      refuse(*value, concat("a BPE model with ", key));
  }
  if (const Value* dropout = model.find("dropout"); is_set(dropout) && dropout->as_real() != 0)
    refuse(*dropout, "BPE dropout");
  if (flag(model, "byte_fallback", false)) refuse(model.at("byte_fallback"), "byte_fallback");
}

class Reader {
 public:
  explicit Reader(const Value& root) : root_(root) {}

  BpeParts read(std::string json, std::string config_json) {
    const Value& model = root_.at("model");
    check_model(model);
    check_other_components(root_);
    BpeParts parts;
    parts.words = read_pre_tokenizer(root_.at("pre_tokenizer"));
    read_vocabulary(model.at("vocab"));
    check_bytes(model);
    parts.byte_ids = byte_ids_;
    parts.merges = read_merges(model.at("merges"));
    if (flag(model, "ignore_merges", false))
      for (const auto& [spelling, id] : ids_) parts.whole_words.emplace(bytes_of_[static_cast<std::size_t>(id)], id);
    if (const Value* list = root_.find("added_tokens"); is_set(list)) parts.added = read_added_tokens(*list);
    parts.bytes_of_id = std::move(bytes_of_);
    parts.has_token = std::move(exists_);
    parts.json = std::move(json);
    parts.config_json = std::move(config_json);
    return parts;
  }

 private:
  std::int64_t vocab_size() const { return static_cast<std::int64_t>(exists_.size()); }

  /// Hugging Face drops a byte that has no token, or writes unk_token for it. The first is done here too, with a
  /// warning.
  void check_bytes(const Value& model) const {
    const auto missing = std::count(byte_ids_.begin(), byte_ids_.end(), BpeModel::no_token);
    if (missing == 0) return;
    if (const Value* unk = model.find("unk_token"); is_set(unk))
      refuse(*unk, concat("unk_token with a vocabulary that lacks ", missing, " of the 256 bytes"));
    log::warning(model.at("vocab").where().str(), ": the vocabulary lacks ", missing,
                 " of the 256 bytes: they vanish from texts");
  }

  void place(std::int64_t id, std::string bytes, const Value& at) {
    if (id < 0 || id >= most_ids)
      throw InputError(concat(at.where().str(), ": token id ", id, " is outside [0, ", most_ids, ")"));
    const auto i = static_cast<std::size_t>(id);
    if (i >= bytes_of_.size()) {
      bytes_of_.resize(i + 1);
      exists_.resize(i + 1, false);
    }
    bytes_of_[i] = std::move(bytes);
    exists_[i] = true;
  }

  void read_vocabulary(const Value& vocabulary) {
    const ByteAlphabet& alphabet = ByteAlphabet::get();
    ids_.reserve(vocabulary.members().size());
    for (const auto& [spelling, id] : vocabulary.members()) {
      const std::int64_t number = id.as_int();
      if (number >= 0 && number < vocab_size() && exists_[static_cast<std::size_t>(number)])
        throw InputError(
            concat(id.where().str(), ": token id ", number, " is given twice, here for \"", spelling, "\""));
      // a spelling outside the alphabet can only be an added token: it stands for itself
      place(number, alphabet.bytes(spelling).value_or(spelling), id);
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
      if (flag(value, "single_word", false)) refuse(value, "an added token with single_word");
      token.lstrip = flag(value, "lstrip", false);
      token.rstrip = flag(value, "rstrip", false);
      token.normalized = flag(value, "normalized", false);
      token.special = flag(value, "special", false);
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
  std::unordered_map<std::string, std::int32_t> ids_;
  std::array<std::int32_t, 256> byte_ids_{};
  std::vector<std::string> bytes_of_;
  std::vector<bool> exists_;
};

std::string tokenizer_config(std::string_view end_of_text) {
  Value config = Value::make_object(
      {{"tokenizer_class", Value::of("PreTrainedTokenizerFast")}, {"clean_up_tokenization_spaces", Value::of(false)}});
  if (!end_of_text.empty())
    for (const char* role : {"bos_token", "eos_token", "unk_token"})
      config.set(role, Value::of(std::string(end_of_text)));
  return dump_json(config) + "\n";
}

}  // namespace

std::shared_ptr<const Tokenizer> parse_tokenizer_json(std::string text, const std::string& path,
                                                      std::string config_json) {
  const Value root = parse_json(text, path);
  return make_bpe_tokenizer(Reader(root).read(std::move(text), std::move(config_json)));
}

std::string tokenizer_json(const BpeFile& file) {
  const auto byte_level = [](bool add_prefix_space) {
    return Value::make_object({{"type", Value::of("ByteLevel")},
                               {"add_prefix_space", Value::of(add_prefix_space)},
                               {"trim_offsets", Value::of(true)},
                               {"use_regex", Value::of(true)}});
  };
  std::vector<Value> added, merges;
  for (const auto& [content, id] : file.specials)
    added.push_back(Value::make_object({{"id", Value::of(std::int64_t{id})},
                                        {"content", Value::of(content)},
                                        {"single_word", Value::of(false)},
                                        {"lstrip", Value::of(false)},
                                        {"rstrip", Value::of(false)},
                                        {"normalized", Value::of(false)},
                                        {"special", Value::of(true)}}));
  std::vector<Value::Member> vocabulary;
  for (const auto& [spelling, id] : file.vocabulary) vocabulary.emplace_back(spelling, Value::of(std::int64_t{id}));
  for (const auto& [left, right] : file.merges)
    merges.push_back(Value::make_array({Value::of(left), Value::of(right)}));
  return dump_json(
      Value::make_object({{"version", Value::of("1.0")},
                          {"truncation", Value()},
                          {"padding", Value()},
                          {"added_tokens", Value::make_array(std::move(added))},
                          {"normalizer", Value()},
                          {"pre_tokenizer", byte_level(false)},
                          {"post_processor", Value()},
                          {"decoder", byte_level(true)},
                          {"model", Value::make_object({{"type", Value::of("BPE")},
                                                        {"dropout", Value()},
                                                        {"unk_token", Value()},
                                                        {"continuing_subword_prefix", Value()},
                                                        {"end_of_word_suffix", Value()},
                                                        {"fuse_unk", Value::of(false)},
                                                        {"byte_fallback", Value::of(false)},
                                                        {"ignore_merges", Value::of(false)},
                                                        {"vocab", Value::make_object(std::move(vocabulary))},
                                                        {"merges", Value::make_array(std::move(merges))}})}}));
}

void write_tokenizer_files(const std::string& folder, std::string_view json, std::string_view end_of_text) {
  write_file_atomically(path_join(folder, "tokenizer.json"), json);
  write_file_atomically(path_join(folder, "tokenizer_config.json"), tokenizer_config(end_of_text));
}

}  // namespace tessera::text
