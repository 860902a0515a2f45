#include <tessera/base/error.h>
#include <tessera/text/tokenizer_components.h>

#include <array>
#include <utility>

namespace tessera::text {
namespace {

const std::string& type_of(const Value& component) { return component.at("type").as_string(); }

constexpr const char* supported_normalizers = "NFC, NFD, and Sequences of them";
constexpr const char* supported_pre_tokenizers = "ByteLevel, and Sequences of Split and Digits that end with ByteLevel";
constexpr const char* supported_post_processors =
    "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, and Sequences with at most one that adds tokens";

void add_normalizer(const Value& value, Normalizer& normalizer) {
  constexpr std::size_t most_steps = 64;  // bounds what a bad file can cost
  const std::string& type = type_of(value);
  if (type == "Sequence") {
    for (const Value& part : value.at("normalizers").items()) add_normalizer(part, normalizer);
    return;
  }
  if (type != "NFC" && type != "NFD") refuse_component(value, "normalizer", supported_normalizers);
  if (normalizer.steps.size() == most_steps)
    throw InputError(concat(value.where().str(), ": more than ", most_steps, " normalizers"));
  normalizer.steps.push_back(type == "NFC" ? Normalizer::Step::nfc : Normalizer::Step::nfd);
}

SplitBehavior read_behavior(const Value& value) {
  static const std::array<std::pair<const char*, SplitBehavior>, 5> known{
      {{"Isolated", SplitBehavior::isolated},
       {"Removed", SplitBehavior::removed},
       {"Contiguous", SplitBehavior::contiguous},
       {"MergedWithPrevious", SplitBehavior::merged_with_previous},
       {"MergedWithNext", SplitBehavior::merged_with_next}}};
  for (const auto& [name, behavior] : known)
    if (value.as_string() == name) return behavior;
  throw InputError(concat(value.where().str(), ": unknown Split behavior \"", value.as_string(),
                          "\"; known: Isolated, Removed, Contiguous, MergedWithPrevious, MergedWithNext"));
}

SplitStep read_split(const Value& value) {
  const Value& pattern = value.at("pattern");
  const SplitBehavior behavior = read_behavior(value.at("behavior"));
  const bool invert = read_flag(value, "invert", false);
  if (const Value* regex = pattern.find("Regex"))
    return {RegexSplitter(regex->as_string(), regex->where().str()), behavior, invert};
  const Value* literal = pattern.find("String");
  if (literal == nullptr)
    throw InputError(concat(pattern.where().str(), ": a Split pattern is {\"Regex\": ...} or {\"String\": ...}"));
  if (literal->as_string().empty()) throw InputError(concat(literal->where().str(), ": an empty Split pattern"));
  return {literal->as_string(), behavior, invert};
}

class PreTokenizerReader {
 public:
  PreTokenizer read(const Value& value) {
    add(value);
    if (!ended_)
      throw InputError(concat(value.where().str(), ": a pre_tokenizer without ByteLevel at its end is not supported; ",
                              "supported: ", supported_pre_tokenizers));
    return std::move(result_);
  }

 private:
  void add(const Value& value) {
    const std::string& type = type_of(value);
    if (type == "Sequence") {
      for (const Value& part : value.at("pretokenizers").items()) add(part);
      return;
    }
    if (ended_)
      throw InputError(concat(value.where().str(), ": the pre_tokenizer ", type, " after ByteLevel is not supported; ",
                              "supported: ", supported_pre_tokenizers));
    if (type == "ByteLevel") {
      result_.add_prefix_space = read_flag(value, "add_prefix_space", true);
      result_.gpt2_pattern = read_flag(value, "use_regex", true);
      ended_ = true;
      return;
    }
    if (result_.steps.size() == PreTokenizer::most_steps)
      throw InputError(concat(value.where().str(), ": more than ", PreTokenizer::most_steps, " pre_tokenizers"));
    if (type == "Split")
      result_.steps.push_back(read_split(value));
    else if (type == "Digits")
      result_.steps.push_back({DigitsPattern(), read_flag(value, "individual_digits", false) ? SplitBehavior::isolated
                                                                                            : SplitBehavior::contiguous});
    else
      refuse_component(value, "pre_tokenizer", supported_pre_tokenizers);
  }

  PreTokenizer result_;
  bool ended_ = false;
};

class PostProcessorReader {
 public:
  explicit PostProcessorReader(std::int64_t vocab_size) : vocab_size_(vocab_size) {}

  PostProcessor read(const Value& value) {
    add(value);
    return std::move(result_);
  }

 private:
  void add(const Value& value) {
    const std::string& type = type_of(value);
    if (type == "ByteLevel") return;
    if (type == "Sequence") {
      for (const Value& part : value.at("processors").items()) add(part);
      return;
    }
    const bool is_template = type == "TemplateProcessing";
    if (!is_template && type != "RobertaProcessing" && type != "BertProcessing")
      refuse_component(value, "post_processor", supported_post_processors);
    if (adds_) throw InputError(concat(value.where().str(), ": a second post_processor that adds tokens"));
    adds_ = true;
    if (is_template) return add_template(value);
    result_.prefix.push_back(checked_id(pair(value.at("cls"))));
    result_.suffix.push_back(checked_id(pair(value.at("sep"))));
  }

  static const Value& pair(const Value& value) {  // [content, id]
    if (value.items().size() != 2) throw InputError(concat(value.where().str(), ": expected [token, id]"));
    return value.items()[1];
  }

  std::int32_t checked_id(const Value& value) const {
    const std::int64_t id = value.as_int();
    if (id < 0 || id >= vocab_size_)
      throw InputError(concat(value.where().str(), ": token id ", id, " is outside [0, ", vocab_size_, ")"));
    return static_cast<std::int32_t>(id);
  }

  void add_template(const Value& value) {
    bool after_text = false;
    for (const Value& piece : value.at("single").items()) {
      if (const Value* sequence = piece.find("Sequence")) {
        if (after_text || sequence->at("id").as_string() != "A")
          throw InputError(concat(piece.where().str(), ": the template for one text must hold Sequence A once"));
        after_text = true;
        continue;
      }
      const Value& special = piece.at("SpecialToken").at("id");
      const Value* token = value.at("special_tokens").find(special.as_string());
      if (token == nullptr)
        throw InputError(concat(special.where().str(), ": \"", special.as_string(), "\" is not among special_tokens"));
      for (const Value& id : token->at("ids").items())
        (after_text ? result_.suffix : result_.prefix).push_back(checked_id(id));
    }
    if (!after_text)
      throw InputError(concat(value.at("single").where().str(), ": the template for one text lacks Sequence A"));
  }

  PostProcessor result_;
  std::int64_t vocab_size_;
  bool adds_ = false;
};

}  // namespace

void refuse_component(const Value& value, const std::string& kind, const std::string& supported) {
  const Value& type = value.at("type");
  throw InputError(concat(type.where().str(), ": the ", kind, " ", type.as_string(), " is not supported; supported: ",
                          supported));
}

bool read_flag(const Value& object, std::string_view key, bool by_default) {
  const Value* value = object.find(key);
  return value != nullptr && !value->is_null() ? value->as_bool() : by_default;
}

Normalizer read_normalizer(const Value& value) {
  Normalizer normalizer;
  if (!value.is_null()) add_normalizer(value, normalizer);
  return normalizer;
}

PreTokenizer read_pre_tokenizer(const Value& value) {
  if (value.is_null())
    throw InputError(concat(value.where().str(), ": a tokenizer without pre_tokenizer is not supported; supported: ",
                            supported_pre_tokenizers));
  return PreTokenizerReader().read(value);
}

PostProcessor read_post_processor(const Value& value, std::int64_t vocab_size) {
  return value.is_null() ? PostProcessor() : PostProcessorReader(vocab_size).read(value);
}

void check_decoder(const Value& value) {
  if (value.is_null()) return;
  const std::string& type = type_of(value);
  if (type == "Sequence") {
    for (const Value& part : value.at("decoders").items()) check_decoder(part);
  } else if (type != "ByteLevel" && type != "Fuse") {
    refuse_component(value, "decoder", "ByteLevel, Fuse, and Sequences of them");
  }
}

}  // namespace tessera::text
