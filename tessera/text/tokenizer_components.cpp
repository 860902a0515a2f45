#include <tessera/base/error.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/unicode/utf8.h>

#include <algorithm>
#include <array>
#include <memory>
#include <utility>

namespace tessera::text {
namespace {

const std::string& type_of(const Value& component) { return component.at("type").as_string(); }

constexpr const char* supported_normalizers =
    "NFC, NFD, NFKC, NFKD, Lowercase, Strip, StripAccents, Replace, Prepend, Nmt, Precompiled, BertNormalizer, "
    "ByteLevel, Sequence";
constexpr const char* supported_post_processors =
    "TemplateProcessing, RobertaProcessing, BertProcessing, ByteLevel, and Sequences with at most one that adds tokens";

void add_bert_normalizer(const Value& value, Normalizer& normalizer) {
  const bool lower_case = read_flag(value, "lowercase", true);
  if (read_flag(value, "clean_text", true)) normalizer.steps.emplace_back(PlainStep::clean_text);
  if (read_flag(value, "handle_chinese_chars", true)) normalizer.steps.emplace_back(PlainStep::space_chinese);
  if (read_flag(value, "strip_accents", lower_case)) {
    normalizer.steps.emplace_back(PlainStep::nfd);
    normalizer.steps.emplace_back(PlainStep::remove_marks);
  }
  if (lower_case) normalizer.steps.emplace_back(PlainStep::lower_case);
}

std::shared_ptr<const Charsmap> read_charsmap(const Value& value) {
  const std::string where = value.where().str();
  return std::make_shared<const Charsmap>(decode_base64(value.as_string(), where), where);
}

void add_normalizer(const Value& value, Normalizer& normalizer) {
  constexpr std::size_t most_steps = 64;  // limits the cost of a malformed file
  static const std::array<std::pair<const char*, PlainStep>, 8> plain{{{"NFC", PlainStep::nfc},
                                                                       {"NFD", PlainStep::nfd},
                                                                       {"NFKC", PlainStep::nfkc},
                                                                       {"NFKD", PlainStep::nfkd},
                                                                       {"Lowercase", PlainStep::lower_case},
                                                                       {"StripAccents", PlainStep::strip_accents},
                                                                       {"Nmt", PlainStep::nmt},
                                                                       {"ByteLevel", PlainStep::byte_level}}};
  const std::string& type = type_of(value);
  if (type == "Sequence") {
    for (const Value& part : value.at("normalizers").items()) add_normalizer(part, normalizer);
    return;
  }
  if (normalizer.steps.size() >= most_steps)
    throw InputError(concat(value.where().str(), ": more than ", most_steps, " normalization steps"));
  for (const auto& [name, step] : plain)
    if (type == name) return void(normalizer.steps.emplace_back(step));
  if (type == "BertNormalizer")
    add_bert_normalizer(value, normalizer);
  else if (type == "Replace")
    normalizer.steps.emplace_back(read_replace(value));
  else if (type == "Prepend")
    normalizer.steps.emplace_back(PrependStep{value.at("prepend").as_string()});
  else if (type == "Strip")
    normalizer.steps.emplace_back(
        StripStep{read_flag(value, "strip_left", true), read_flag(value, "strip_right", true)});
  else if (type == "Precompiled")
    normalizer.steps.emplace_back(CharsmapStep{read_charsmap(value.at("precompiled_charsmap"))});
  else
    refuse_component(value, "normalizer", supported_normalizers);
}

/// Collects the types of a component's steps, with Sequences expanded.
void flatten(const Value& value, const char* steps, std::vector<std::string>& types) {
  if (value.is_null()) return;
  if (type_of(value) != "Sequence") return types.push_back(type_of(value));
  for (const Value& step : value.at(steps).items()) flatten(step, steps, types);
}

class PreTokenizerReader {
 public:
  PreTokenizer read(const Value& value) {
    add(value);
    return std::move(result_);
  }

 private:
  void add(const Value& value) {
    const std::string& type = type_of(value);
    if (type == "Sequence") {
      for (const Value& part : value.at("pretokenizers").items()) add(part);
      return;
    }
    if (type == "ByteLevel") {
      result_.add_prefix_space = read_flag(value, "add_prefix_space", true);
      result_.gpt2_pattern = read_flag(value, "use_regex", true);
      return;
    }
    if (result_.steps.size() == PreTokenizer::most_steps)
      throw InputError(concat(value.where().str(), ": more than ", PreTokenizer::most_steps, " pre_tokenizers"));
    result_.steps.push_back(type == "Split" ? read_split(value) : read_digits(value));
  }

  PreTokenizer result_;
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
    if (is_template) {
      result_.single = read_template(value, value.at("single"), /*texts=*/1);
      if (const Value* pair = value.find("pair")) result_.pair = read_template(value, *pair, /*texts=*/2);
    } else {
      const std::int32_t cls = checked_id(id_of_pair(value.at("cls"))), sep = checked_id(id_of_pair(value.at("sep")));
      const bool bert = type == "BertProcessing";
      result_.single = {{0, {cls}, 0}, {'A', {}, 0}, {0, {sep}, 0}};
      result_.pair =
          bert ? std::vector<TemplatePiece>{{0, {cls}, 0}, {'A', {}, 0}, {0, {sep}, 0}, {'B', {}, 1}, {0, {sep}, 1}}
               : std::vector<TemplatePiece>{
                     {0, {cls}, 0}, {'A', {}, 0}, {0, {sep, sep}, 0}, {'B', {}, 0}, {0, {sep}, 0}};
    }
    bool after_text = false;
    for (const TemplatePiece& piece : result_.single) {
      auto& side = after_text ? result_.suffix : result_.prefix;
      side.insert(side.end(), piece.ids.begin(), piece.ids.end());
      after_text |= piece.text != 0;
    }
  }

  static const Value& id_of_pair(const Value& value) {  // [content, id]
    if (value.items().size() != 2) throw InputError(concat(value.where().str(), ": expected [token, id]"));
    return value.items()[1];
  }

  std::int32_t checked_id(const Value& value) const {
    const std::int64_t id = value.as_int();
    if (id < 0 || id >= vocab_size_)
      throw InputError(concat(value.where().str(), ": token id ", id, " is outside [0, ", vocab_size_, ")"));
    return static_cast<std::int32_t>(id);
  }

  std::int32_t type_of_piece(const Value& piece) const {
    const Value* type = piece.find("type_id");
    if (type == nullptr) return 0;
    if (type->as_int() < 0 || type->as_int() > most_types)
      throw InputError(
          concat(type->where().str(), ": token type ", type->as_int(), " is outside [0, ", most_types, "]"));
    return static_cast<std::int32_t>(type->as_int());
  }

  std::vector<TemplatePiece> read_template(const Value& value, const Value& list, std::size_t texts) const {
    std::vector<TemplatePiece> pieces;
    std::string found;  // the texts of the template, in order
    for (const Value& item : list.items()) {
      TemplatePiece& piece = pieces.emplace_back();
      if (const Value* sequence = item.find("Sequence")) {
        const std::string& name = sequence->at("id").as_string();
        piece.text = name == "A" ? 'A' : 'B';
        piece.type = type_of_piece(*sequence);
        if ((name != "A" && name != "B") || found.find(piece.text) != std::string::npos || (texts == 1 && name == "B"))
          throw InputError(concat(item.where().str(), ": the template for ", texts == 1 ? "one text" : "two texts",
                                  " must contain Sequence A", texts == 1 ? "" : " and Sequence B", " once"));
        found += piece.text;
        continue;
      }
      const Value& special = item.at("SpecialToken");
      const Value* token = value.at("special_tokens").find(special.at("id").as_string());
      if (token == nullptr)
        throw InputError(concat(special.at("id").where().str(), ": \"", special.at("id").as_string(),
                                "\" is not among special_tokens"));
      for (const Value& id : token->at("ids").items()) piece.ids.push_back(checked_id(id));
      piece.type = type_of_piece(special);
    }
    if (found.size() != texts)
      throw InputError(concat(list.where().str(), ": the template for ",
                              texts == 1 ? "one text lacks Sequence A" : "two texts lacks one of them"));
    return pieces;
  }

  static constexpr std::int64_t most_types = 1 << 20;
  PostProcessor result_;
  std::int64_t vocab_size_;
  bool adds_ = false;
};

}  // namespace

void refuse_component(const Value& value, const std::string& kind, const std::string& supported) {
  const Value& type = value.at("type");
  throw InputError(
      concat(type.where().str(), ": the ", kind, " ", type.as_string(), " is not supported; supported: ", supported));
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

ReplaceStep read_replace(const Value& value) {
  const Value& pattern = value.at("pattern");
  const std::string& content = value.at("content").as_string();
  if (const Value* regex = pattern.find("Regex"))
    return {std::make_shared<const RegexSplitter>(regex->as_string(), regex->where().str()), content};
  const Value* literal = pattern.find("String");
  if (literal == nullptr)
    throw InputError(concat(pattern.where().str(), ": a Replace pattern is {\"Regex\": ...} or {\"String\": ...}"));
  if (literal->as_string().empty()) throw InputError(concat(literal->where().str(), ": an empty Replace pattern"));
  return {literal->as_string(), content};
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

SplitStep read_digits(const Value& value) {
  return {DigitsPattern(),
          read_flag(value, "individual_digits", false) ? SplitBehavior::isolated : SplitBehavior::contiguous};
}

const std::string& read_character(const Value& value) {
  const std::string& text = value.as_string();
  if (text.empty() || code_point_at(text, 0).size != text.size())
    throw InputError(concat(value.where().str(), ": expected one character, found \"", text, "\""));
  return text;
}

bool is_byte_level_pre_tokenizer(const Value& value) {
  std::vector<std::string> types;
  flatten(value, "pretokenizers", types);
  if (types.empty() || types.back() != "ByteLevel") return false;
  types.pop_back();
  return std::all_of(types.begin(), types.end(),
                     [](const std::string& type) { return type == "Split" || type == "Digits"; });
}

PreTokenizer read_pre_tokenizer(const Value& value) { return PreTokenizerReader().read(value); }

bool is_byte_level_decoder(const Value& value) {
  std::vector<std::string> types;
  flatten(value, "decoders", types);
  return std::all_of(types.begin(), types.end(),
                     [](const std::string& type) { return type == "ByteLevel" || type == "Fuse"; });
}

PostProcessor read_post_processor(const Value& value, std::int64_t vocab_size) {
  return value.is_null() ? PostProcessor() : PostProcessorReader(vocab_size).read(value);
}

}  // namespace tessera::text
