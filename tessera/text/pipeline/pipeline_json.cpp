#include <tessera/base/error.h>
#include <tessera/text/pipeline/pipeline_json.h>
#include <tessera/text/tokenizer_components.h>
#include <tessera/text/wordpiece/bert_characters.h>

#include <utility>

namespace tessera::text {
namespace {

constexpr const char* supported_cutters =
    "ByteLevel, Metaspace, Whitespace, WhitespaceSplit, Punctuation, Digits, Split, CharDelimiterSplit, "
    "BertPreTokenizer, UnicodeScripts, FixedLength, Sequence";
constexpr const char* supported_decoders =
    "ByteLevel, ByteFallback, Fuse, Strip, Replace, Metaspace, WordPiece, BPEDecoder, CTC, Sequence";

bool is_white_space(std::uint32_t code) {
  return (BertCharacters::get().of(code).flags & BertCharacters::separator) != 0;
}
bool is_punctuation(std::uint32_t code) {
  return (BertCharacters::get().of(code).flags & BertCharacters::punctuation) != 0;
}

/// Whether Metaspace prepends; if prepend_scheme is missing, the older add_prefix_space decides.
MetaspaceStep::Prepend read_prepend(const Value& value) {
  using Prepend = MetaspaceStep::Prepend;
  const bool adds = read_flag(value, "add_prefix_space", true);
  const Value* scheme = value.find("prepend_scheme");
  if (!is_set(scheme)) return adds ? Prepend::always : Prepend::never;
  const std::string& name = scheme->as_string();
  if (name != "always" && name != "first" && name != "never")
    throw InputError(
        concat(scheme->where().str(), ": unknown prepend_scheme \"", name, "\"; known: always, first, never"));
  if (!adds && name != "never")
    throw InputError(concat(scheme->where().str(), ": prepend_scheme \"", name,
                            "\" contradicts add_prefix_space false, which is \"never\""));
  return name == "always" ? Prepend::always : name == "first" ? Prepend::first : Prepend::never;
}

class CutterReader {
 public:
  WordCutter read(const Value& value) {
    if (!value.is_null()) add(value);
    return std::move(result_);
  }

 private:
  void add(const Value& value) {
    const std::string& type = value.at("type").as_string();
    if (type == "Sequence") {
      for (const Value& part : value.at("pretokenizers").items()) add(part);
      return;
    }
    if (result_.steps.size() >= WordCutter::most_steps)
      throw InputError(concat(value.where().str(), ": more than ", WordCutter::most_steps, " pre_tokenizers"));
    add_step(type, value);
  }

  void add_step(const std::string& type, const Value& value) {
    auto& steps = result_.steps;
    if (type == "ByteLevel") {
      steps.emplace_back(
          ByteLevelStep{read_flag(value, "add_prefix_space", true), read_flag(value, "use_regex", true)});
    } else if (type == "Metaspace") {
      steps.emplace_back(
          MetaspaceStep{read_character(value.at("replacement")), read_prepend(value), read_flag(value, "split", true)});
    } else if (type == "Whitespace") {
      steps.emplace_back(WordRunsStep());
    } else if (type == "WhitespaceSplit") {
      steps.emplace_back(SplitStep{CodePredicate(is_white_space), SplitBehavior::removed});
    } else if (type == "Punctuation") {
      const Value* behavior = value.find("behavior");
      steps.emplace_back(SplitStep{CodePredicate(is_punctuation),
                                   is_set(behavior) ? read_behavior(*behavior) : SplitBehavior::isolated});
    } else if (type == "Digits") {
      steps.emplace_back(read_digits(value));
    } else if (type == "Split") {
      steps.emplace_back(read_split(value));
    } else if (type == "CharDelimiterSplit") {
      steps.emplace_back(SplitStep{read_character(value.at("delimiter")), SplitBehavior::removed});
    } else if (type == "BertPreTokenizer") {
      steps.emplace_back(SplitStep{CodePredicate(is_white_space), SplitBehavior::removed});
      steps.emplace_back(SplitStep{CodePredicate(is_punctuation), SplitBehavior::isolated});
    } else if (type == "UnicodeScripts") {
      steps.emplace_back(ScriptsStep());
    } else if (type == "FixedLength") {
      const Value* length = value.find("length");
      const std::int64_t characters = is_set(length) ? length->as_int() : 5;
      if (characters < 1)
        throw InputError(
            concat(value.where().str(), ": FixedLength has length ", characters, "; it must be at least 1"));
      steps.emplace_back(FixedLengthStep{static_cast<std::size_t>(characters)});
    } else {
      refuse_component(value, "pre_tokenizer", supported_cutters);
    }
  }

  WordCutter result_;
};

std::int64_t read_count(const Value& value) {
  if (value.as_int() < 0) throw InputError(concat(value.where().str(), ": ", value.as_int(), " is negative"));
  return value.as_int();
}

std::string text_or(const Value& object, const char* key, const char* by_default) {
  const Value* value = object.find(key);
  return is_set(value) ? value->as_string() : by_default;
}

void add_decoder(const Value& value, Decoder& decoder) {
  constexpr std::size_t most_steps = 64;  // limits the cost of a malformed file
  const std::string& type = value.at("type").as_string();
  if (type == "Sequence") {
    for (const Value& part : value.at("decoders").items()) add_decoder(part, decoder);
    return;
  }
  if (decoder.steps.size() >= most_steps)
    throw InputError(concat(value.where().str(), ": more than ", most_steps, " decoders"));
  if (type == "ByteLevel")
    decoder.steps.emplace_back(PlainDecoding::byte_level);
  else if (type == "ByteFallback")
    decoder.steps.emplace_back(PlainDecoding::byte_fallback);
  else if (type == "Fuse")
    decoder.steps.emplace_back(PlainDecoding::fuse);
  else if (type == "Strip")
    decoder.steps.emplace_back(StripDecoding{read_character(value.at("content")), read_count(value.at("start")),
                                             read_count(value.at("stop"))});
  else if (type == "Replace")
    decoder.steps.emplace_back(read_replace(value));
  else if (type == "Metaspace")
    decoder.steps.emplace_back(MetaspaceDecoding{read_character(value.at("replacement")),
                                                 read_prepend(value) != MetaspaceStep::Prepend::never});
  else if (type == "WordPiece")
    decoder.steps.emplace_back(
        WordPieceDecoder{true, text_or(value, "prefix", "##"), read_flag(value, "cleanup", true)});
  else if (type == "BPEDecoder")
    decoder.steps.emplace_back(SuffixDecoding{text_or(value, "suffix", "</w>")});
  else if (type == "CTC")
    decoder.steps.emplace_back(CtcDecoding{text_or(value, "pad_token", "<pad>"),
                                           text_or(value, "word_delimiter_token", "|"),
                                           read_flag(value, "cleanup", true)});
  else
    refuse_component(value, "decoder", supported_decoders);
}

}  // namespace

WordCutter read_word_cutter(const Value& value) { return CutterReader().read(value); }

Decoder read_decoder(const Value& value) {
  Decoder decoder;
  if (value.is_null())
    decoder.joins_with_blanks = true;
  else
    add_decoder(value, decoder);
  return decoder;
}

PipelineParts read_pipeline(const Value& root) {
  note_what_is_not_applied(root);
  PipelineParts parts;
  TokenTable table(root);
  parts.normalizer = read_normalizer(member_or_null(root, "normalizer"));
  parts.cutter = read_word_cutter(member_or_null(root, "pre_tokenizer"));
  parts.decoder = read_decoder(member_or_null(root, "decoder"));
  parts.model = read_word_model(root.at("model"), table, parts.ids);
  parts.added = table.read_added_tokens();
  parts.post_processor = read_post_processor(member_or_null(root, "post_processor"), table.size());
  parts.contents = std::move(table.contents);
  parts.exists = std::move(table.exists);
  return parts;
}

}  // namespace tessera::text
