#include <tessera/format/gguf/gguf_tokenizer.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <unordered_set>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/text/tokenizer_json.h>

namespace tessera::format {
namespace {

// The families' patterns for splitting text into words, as written in their own tokenizer.json.
constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

enum class Split { gpt2, smollm, llama3, qwen2 };

struct Family {
  const char* pre;  ///< tokenizer.ggml.pre
  Split split;
};
constexpr std::array<Family, 7> kFamilies{{{"gpt-2", Split::gpt2},
                                           {"default", Split::gpt2},
                                           {"smollm", Split::smollm},
                                           {"llama-bpe", Split::llama3},
                                           {"llama3", Split::llama3},
                                           {"llama-v3", Split::llama3},
                                           {"qwen2", Split::qwen2}}};

// tokenizer.ggml.token_type (llama.h, llama_token_type)
constexpr std::int64_t kNormal = 1, kControl = 3, kUserDefined = 4, kUnused = 5;

Value byte_level(bool trim_offsets, bool use_regex) {
  return Value::make_object({{"type", Value::of("ByteLevel")},
                             {"add_prefix_space", Value::of(false)},
                             {"trim_offsets", Value::of(trim_offsets)},
                             {"use_regex", Value::of(use_regex)}});
}

Value sequence(const char* member, Value first, Value second) {
  return Value::make_object(
      {{"type", Value::of("Sequence")}, {member, Value::make_array({std::move(first), std::move(second)})}});
}

Value split_by(const char* pattern) {
  return Value::make_object({{"type", Value::of("Split")},
                             {"pattern", Value::make_object({{"Regex", Value::of(pattern)}})},
                             {"behavior", Value::of("Isolated")},
                             {"invert", Value::of(false)}});
}

Value pre_tokenizer(Split split) {
  switch (split) {
    case Split::gpt2:
      return byte_level(true, true);
    case Split::smollm:
      return sequence("pretokenizers",
                      Value::make_object({{"type", Value::of("Digits")}, {"individual_digits", Value::of(true)}}),
                      byte_level(true, true));
    case Split::llama3:
      return sequence("pretokenizers", split_by(kLlama3Pattern), byte_level(true, false));
    case Split::qwen2:
      return sequence("pretokenizers", split_by(kQwen2Pattern), byte_level(false, false));
  }
  throw Error("no such split");
}

/// Adds `bos` before a text and `eos` after it (each if given), as a TemplateProcessing.
Value add_around(const std::string* bos, std::int64_t bos_id, const std::string* eos, std::int64_t eos_id) {
  const auto token = [](const std::string& content, int type) {
    return Value::make_object(
        {{"SpecialToken", Value::make_object({{"id", Value::of(content)}, {"type_id", Value::of(type)}})}});
  };
  const auto text = [](const char* name, int type) {
    return Value::make_object(
        {{"Sequence", Value::make_object({{"id", Value::of(name)}, {"type_id", Value::of(type)}})}});
  };
  std::vector<Value> single, pair;
  for (int type : {0, 1}) {
    if (bos != nullptr) pair.push_back(token(*bos, type));
    pair.push_back(text(type == 0 ? "A" : "B", type));
    if (eos != nullptr) pair.push_back(token(*eos, type));
    if (type == 0) single = pair;
  }
  Value specials = Value::make_object();
  for (const auto& [content, id] : {std::pair(bos, bos_id), std::pair(eos, eos_id)}) {
    if (content == nullptr) continue;
    specials.set(*content, Value::make_object({{"id", Value::of(*content)},
                                               {"ids", Value::make_array({Value::of(id)})},
                                               {"tokens", Value::make_array({Value::of(*content)})}}));
  }
  return Value::make_object({{"type", Value::of("TemplateProcessing")},
                             {"single", Value::make_array(std::move(single))},
                             {"pair", Value::make_array(std::move(pair))},
                             {"special_tokens", std::move(specials)}});
}

class Reader {
 public:
  Reader(const GgufFile& file, const GgufModel& model) : file_(file), model_(model) {}

  GgufTokenizer read() {
    read_family();
    read_tokens();
    read_merges();
    GgufTokenizer out;
    out.kind = gguf_tokenizer_kind(file_);
    out.json = dump_json(tokenizer()) + "\n";
    out.config_json = dump_json(tokenizer_config()) + "\n";
    out.notes = std::move(notes_);
    return out;
  }

 private:
  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw InputError(concat(file_.path(), ": ", parts...));
  }

  void read_family() {
    const std::string kind(file_.text("tokenizer.ggml.model").value_or(""));
    if (kind != "gpt2")
      fail("the tokenizer has kind '", kind, "'", kind == "llama" ? " (SentencePiece)" : "",
           "; only byte-level BPE ('gpt2') can be converted. Use --no_tokenizer to convert only the weights, and copy "
           "the ",
           "tokenizer.json of the original model");
    const auto pre = file_.text("tokenizer.ggml.pre");
    if (!pre) {
      const bool qwen =
          model_.architecture == GgufArchitecture::qwen2 || model_.architecture == GgufArchitecture::qwen3;
      split_ = qwen ? Split::qwen2 : Split::gpt2;
      notes_.push_back(
          concat("the file does not specify how its tokenizer splits words (tokenizer.ggml.pre): assuming ",
                 qwen ? "qwen2" : "gpt-2", "'s"));
      return;
    }
    std::vector<std::string> known;
    for (const Family& family : kFamilies) {
      if (*pre == family.pre) {
        split_ = family.split;
        return;
      }
      known.emplace_back(family.pre);
    }
    fail("the tokenizer splits words as '", *pre, "' (tokenizer.ggml.pre), which is not supported; supported are ",
         join(known),
         ". Use --no_tokenizer to convert only the weights, and copy the tokenizer.json of the original model");
  }

  void read_tokens() {
    const auto tokens = file_.strings("tokenizer.ggml.tokens");
    if (!tokens) fail("the metadata has no 'tokenizer.ggml.tokens'");
    types_ = file_.integers("tokenizer.ggml.token_type").value_or(std::vector<std::int64_t>(tokens->size(), kNormal));
    if (types_.size() != tokens->size())
      fail("'tokenizer.ggml.token_type' has ", types_.size(), " entries for ", tokens->size(), " tokens");
    tokens_.assign(tokens->begin(), tokens->end());
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      // Converters use such names for ids without a token.
      if (types_[id] == kUnused && tokens_[id] == concat("[PAD", id, "]")) continue;
      if (tokens_[id].empty()) fail("token ", id, " is empty");
      if (!ids_.insert(tokens_[id]).second) fail("token ", id, " is \"", tokens_[id], "\", as is an earlier one");
      vocabulary_.emplace_back(tokens_[id], Value::of(static_cast<std::int64_t>(id)));
    }
  }

  void read_merges() {
    const auto merges = file_.strings("tokenizer.ggml.merges");
    if (!merges) fail("the metadata has no 'tokenizer.ggml.merges', which byte-level BPE requires");
    merges_.reserve(merges->size());
    for (std::size_t i = 0; i < merges->size(); ++i) {
      const std::string_view merge = (*merges)[i];
      const std::size_t blank = merge.find(' ');
      if (blank == std::string_view::npos || merge.find(' ', blank + 1) != std::string_view::npos)
        fail("merge ", i, " is \"", merge, "\"; expected two tokens with a blank between them");
      const std::string left(merge.substr(0, blank)), right(merge.substr(blank + 1));
      for (const std::string& token : {left, right, left + right})
        if (!ids_.contains(token))
          fail("merge ", i, " \"", merge, "\" needs the token \"", token, "\", which is not in the vocabulary");
      merges_.push_back(Value::make_array({Value::of(left), Value::of(right)}));
    }
  }

  bool is_added(std::size_t id) const { return types_[id] == kControl || types_[id] == kUserDefined; }

  Value added_token(std::size_t id) const {
    return Value::make_object({{"content", Value::of(tokens_[id])},
                               {"single_word", Value::of(false)},
                               {"lstrip", Value::of(false)},
                               {"rstrip", Value::of(false)},
                               {"normalized", Value::of(false)},
                               {"special", Value::of(types_[id] == kControl)}});
  }

  const std::string* token(const std::optional<std::int64_t>& id) const {
    return id ? &tokens_[static_cast<std::size_t>(*id)] : nullptr;  // the ids in the model's metadata are inside the
                                                                    // vocabulary
  }

  /// llama.cpp adds bos before texts with Llama-3's splitting unless the file specifies otherwise.
  bool adds_bos() const { return file_.boolean("tokenizer.ggml.add_bos_token").value_or(split_ == Split::llama3); }
  bool adds_eos() const { return file_.boolean("tokenizer.ggml.add_eos_token").value_or(false); }

  Value post_processor() const {
    const std::string *bos = adds_bos() ? token(model_.bos) : nullptr, *eos = adds_eos() ? token(model_.eos) : nullptr;
    if (bos == nullptr && eos == nullptr)
      return split_ == Split::smollm || split_ == Split::llama3 ? Value() : byte_level(false, split_ == Split::gpt2);
    return sequence("processors", byte_level(false, split_ != Split::qwen2),
                    add_around(bos, model_.bos.value_or(0), eos, model_.eos.value_or(0)));
  }

  Value tokenizer() {
    std::vector<Value> added;
    for (std::size_t id = 0; id < tokens_.size(); ++id) {
      if (!is_added(id)) continue;
      std::vector<Value::Member> members = {{"id", Value::of(static_cast<std::int64_t>(id))}};
      const Value rest = added_token(id);
      members.insert(members.end(), rest.members().begin(), rest.members().end());
      added.push_back(Value::make_object(std::move(members)));
    }
    const bool qwen = split_ == Split::qwen2;
    return text::tokenizer_document({.added_tokens = std::move(added),
                                     .normalizer = qwen ? Value::make_object({{"type", Value::of("NFC")}}) : Value(),
                                     .pre_tokenizer = pre_tokenizer(split_),
                                     .post_processor = post_processor(),
                                     .decoder = byte_level(!qwen, !qwen),
                                     .ignore_merges = split_ == Split::llama3,
                                     .vocabulary = std::move(vocabulary_),
                                     .merges = std::move(merges_)});
  }

  Value tokenizer_config() const {
    Value config =
        Value::make_object({{"add_bos_token", Value::of(adds_bos())}, {"add_eos_token", Value::of(adds_eos())}});
    Value decoder = Value::make_object();
    for (std::size_t id = 0; id < tokens_.size(); ++id)
      if (is_added(id)) decoder.set(std::to_string(id), added_token(id));
    config.set("added_tokens_decoder", std::move(decoder));
    const std::pair<const char*, std::optional<std::int64_t>> roles[] = {
        {"bos_token", model_.bos}, {"eos_token", model_.eos}, {"pad_token", model_.pad}, {"unk_token", model_.unk}};
    for (const auto& [role, id] : roles)
      if (const std::string* content = token(id)) config.set(role, Value::of(*content));
    config.set("clean_up_tokenization_spaces", Value::of(false));
    config.set("model_max_length", Value::of(model_.context));
    config.set("tokenizer_class", Value::of("PreTrainedTokenizerFast"));
    if (Value chat = chat_template(); !chat.is_null()) config.set("chat_template", std::move(chat));
    return config;
  }

  /// A text or, if there are additional named templates (tokenizer.chat_templates), a list as Hugging Face writes it.
  Value chat_template() const {
    const auto main = file_.text("tokenizer.chat_template");
    const auto names = file_.strings("tokenizer.chat_templates").value_or(std::vector<std::string_view>());
    if (names.empty()) return main ? Value::of(std::string(*main)) : Value();
    std::vector<Value> list;
    const auto add = [&](std::string_view name, std::string_view text) {
      list.push_back(
          Value::make_object({{"name", Value::of(std::string(name))}, {"template", Value::of(std::string(text))}}));
    };
    if (main) add("default", *main);
    for (const std::string_view name : names)
      if (const auto text = file_.text(concat("tokenizer.chat_template.", name))) add(name, *text);
    return Value::make_array(std::move(list));
  }

  const GgufFile& file_;
  const GgufModel& model_;
  Split split_ = Split::gpt2;
  std::vector<std::string> tokens_;
  std::vector<std::int64_t> types_;
  std::unordered_set<std::string> ids_;
  std::vector<Value::Member> vocabulary_;
  std::vector<Value> merges_;
  std::vector<std::string> notes_;
};

}  // namespace

GgufTokenizer read_gguf_tokenizer(const GgufFile& file, const GgufModel& model) {
  if (!file.has("tokenizer.ggml.model")) return {};
  return Reader(file, model).read();
}

std::string gguf_tokenizer_kind(const GgufFile& file) {
  const auto model = file.text("tokenizer.ggml.model");
  if (!model) return "";
  if (*model == "llama") return "SentencePiece";
  if (*model != "gpt2") return std::string(*model);
  const auto pre = file.text("tokenizer.ggml.pre");
  return pre ? concat("byte-level BPE (", *pre, ")") : "byte-level BPE";
}

}  // namespace tessera::format
