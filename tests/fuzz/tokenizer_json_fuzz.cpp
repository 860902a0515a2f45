// libFuzzer entry for the tokenizer.json reader and its tokenizers: any bytes give a tokenizer or InputError; a
// tokenizer that loads encodes any text to ids within its vocabulary and decodes them again (Error if a pattern
// backtracks too much). The first byte chooses: the rest is a tokenizer.json, NUL, and a text, or a choice of
// components with patterns and texts from the input, which passes the reader more often.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/log.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/text/bpe/byte_alphabet.h>
#include <tessera/text/chat_template.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/utf8.h>

namespace {

using tessera::Value;

/// Consumes the input from the front.
class Input {
 public:
  explicit Input(std::string_view bytes) : bytes_(bytes) {}
  unsigned byte() {
    if (bytes_.empty()) return 0;
    const auto first = static_cast<unsigned char>(bytes_.front());
    bytes_.remove_prefix(1);
    return first;
  }
  bool flag() { return byte() & 1; }
  std::string_view until(char end) {
    const std::size_t at = std::min(bytes_.find(end), bytes_.size());
    const std::string_view text = bytes_.substr(0, at);
    bytes_.remove_prefix(std::min(at + 1, bytes_.size()));
    return text;
  }
  std::string valid_text() { return tessera::text::replace_ill_formed(until('\0')); }

 private:
  std::string_view bytes_;
};

Value object(std::vector<Value::Member> members) { return Value::make_object(std::move(members)); }

Value step(Input& input) {
  switch (input.byte() % 3) {
    case 0:
      return object({{"type", Value::of("Digits")}, {"individual_digits", Value::of(input.flag())}});
    default: {
      static const char* const behaviors[] = {"Isolated", "Removed", "Contiguous", "MergedWithPrevious",
                                              "MergedWithNext"};
      const char* behavior = behaviors[input.byte() % 5];
      const bool invert = input.flag();
      const char* kind = input.flag() ? "Regex" : "String";
      return object({{"type", Value::of("Split")},
                     {"pattern", object({{kind, Value::of(input.valid_text())}})},
                     {"behavior", Value::of(behavior)},
                     {"invert", Value::of(invert)}});
    }
  }
}

/// A WordPiece file of valid form.
std::string built_wordpiece(Input& input) {
  const unsigned shape = input.byte();
  const auto flag = [&](unsigned bit) { return Value::of((shape >> bit & 1) != 0); };
  std::vector<Value::Member> vocabulary = {
      {"[UNK]", Value::of(0)}, {"[CLS]", Value::of(1)}, {"a", Value::of(2)}, {"##a", Value::of(3)}};
  int next = 4;
  for (unsigned i = input.byte() % 4; i > 0; --i) {
    std::string token = input.valid_text();
    bool known = false;
    for (const auto& [spelling, id] : vocabulary) known |= spelling == token;
    if (!known) vocabulary.emplace_back(std::move(token), Value::of(next++));
  }
  std::vector<Value> added;
  if (shape & 64)
    added.push_back(object({{"id", Value::of(next)},
                            {"content", Value::of(input.valid_text())},
                            {"normalized", Value::of(input.flag())}}));
  const Value normalizer = object({{"type", Value::of("BertNormalizer")},
                                   {"clean_text", flag(0)},
                                   {"handle_chinese_chars", flag(1)},
                                   {"strip_accents", shape & 4 ? Value() : flag(3)},
                                   {"lowercase", flag(4)}});
  return tessera::dump_json(
      object({{"added_tokens", Value::make_array(std::move(added))},
              {"normalizer", normalizer},
              {"pre_tokenizer", object({{"type", Value::of("BertPreTokenizer")}})},
              {"decoder", shape & 32
                              ? Value()
                              : object({{"type", Value::of("WordPiece")}, {"prefix", Value::of(input.valid_text())}})},
              {"model",
               object({{"type", Value::of("WordPiece")},
                       {"unk_token", Value::of("[UNK]")},
                       {"continuing_subword_prefix", shape & 128 ? Value::of(input.valid_text()) : Value::of("##")},
                       {"max_input_chars_per_word", Value::of(static_cast<int>(input.byte()))},
                       {"vocab", object(std::move(vocabulary))}})}}),
      -1);
}

/// A byte-level BPE file of valid form.
std::string built(Input& input) {
  const unsigned shape = input.byte();
  std::vector<Value> steps;
  for (unsigned i = shape & 3; i > 0; --i) steps.push_back(step(input));
  steps.push_back(object({{"type", Value::of("ByteLevel")},
                          {"add_prefix_space", Value::of((shape & 4) != 0)},
                          {"use_regex", Value::of((shape & 8) != 0)}}));
  std::vector<Value::Member> vocabulary;
  const auto spell = [](std::string_view bytes) { return tessera::text::ByteAlphabet::get().spell(bytes); };
  // few tokens, so that an input takes microseconds; other bytes are unknown or dropped
  std::string letters = "ab 1\n\xC3\xA9";
  int next = 0;
  for (const char c : letters) vocabulary.emplace_back(spell(std::string(1, c)), Value::of(next++));
  std::vector<Value> merges, added;
  for (int i = 0; i < 2; ++i) {
    const char first = letters[input.byte() % letters.size()], second = letters[input.byte() % letters.size()];
    vocabulary.emplace_back(spell(std::string{first, second}), Value::of(next++));
    merges.push_back(
        Value::make_array({Value::of(spell(std::string(1, first))), Value::of(spell(std::string(1, second)))}));
  }
  for (unsigned i = input.byte() % 4; i > 0; --i) {
    const unsigned flags = input.byte();
    added.push_back(object({{"id", Value::of(next++)},
                            {"content", Value::of(input.valid_text())},
                            {"single_word", Value::of((flags & 1) != 0)},
                            {"lstrip", Value::of((flags & 2) != 0)},
                            {"rstrip", Value::of((flags & 4) != 0)},
                            {"normalized", Value::of((flags & 8) != 0)},
                            {"special", Value::of((flags & 16) != 0)}}));
  }
  return tessera::dump_json(
      object({{"added_tokens", Value::make_array(std::move(added))},
              {"normalizer", shape & 32 ? object({{"type", Value::of(shape & 64 ? "NFC" : "NFD")}}) : Value()},
              {"pre_tokenizer", object({{"type", Value::of("Sequence")}, {"pretokenizers", Value::make_array(steps)}})},
              {"model", object({{"vocab", object(std::move(vocabulary))},
                                {"merges", Value::make_array(std::move(merges))},
                                {"unk_token", shape & 16 ? Value::of("a") : Value()},
                                {"fuse_unk", Value::of(input.flag())},
                                {"ignore_merges", Value::of((shape & 128) != 0)}})}}),
      -1);
}

/// A file of one of the other models with steps of all kinds.
std::string built_pipeline(Input& input) {
  const unsigned shape = input.byte();
  const auto plain = [](const char* type) { return object({{"type", Value::of(type)}}); };
  const auto metaspace = [&](unsigned kind) {
    static const char* const schemes[] = {"always", "first", "never"};
    return object({{"type", Value::of("Metaspace")},
                   {"replacement", Value::of("_")},
                   {"prepend_scheme", Value::of(schemes[kind % 3])},
                   {"split", Value::of((kind & 4) != 0)}});
  };
  static const char* const normalizers[] = {"NFC",          "NFKC", "NFKD",      "Lowercase",
                                            "StripAccents", "Nmt",  "ByteLevel", "Strip"};
  static const char* const cutters[] = {"Whitespace",     "WhitespaceSplit", "Punctuation", "BertPreTokenizer",
                                        "UnicodeScripts", "FixedLength",     "ByteLevel"};
  static const char* const decoders[] = {"ByteLevel", "ByteFallback", "Fuse", "WordPiece", "BPEDecoder", "CTC"};
  std::vector<Value> normal, cuts, decodes;
  for (unsigned i = shape & 3; i > 0; --i) normal.push_back(plain(normalizers[input.byte() % 8]));
  for (unsigned i = shape >> 2 & 3; i > 0; --i) {
    const unsigned kind = input.byte();
    cuts.push_back(kind % 9 < 7 ? plain(cutters[kind % 9]) : kind % 9 == 7 ? metaspace(kind >> 4) : step(input));
  }
  for (unsigned i = shape >> 4 & 3; i > 0; --i) decodes.push_back(plain(decoders[input.byte() % 6]));
  std::vector<Value> pieces;
  std::vector<Value::Member> vocabulary;
  for (const char* piece : {"<unk>", "a", "_", "_a", "aa", "<0xC3>", "<0xA9>", "b</w>", "##a"}) {
    pieces.push_back(Value::make_array({Value::of(piece), Value::of(-static_cast<double>(input.byte()) / 16)}));
    vocabulary.emplace_back(piece, Value::of(static_cast<int>(vocabulary.size())));
  }
  const bool falls_back = (shape & 64) != 0;
  Value model = object({{"type", Value::of("Unigram")},
                        {"unk_id", Value::of(0)},
                        {"byte_fallback", Value::of(falls_back)},
                        {"vocab", Value::make_array(std::move(pieces))}});
  if (shape & 128)
    model = object({{"type", Value::of("BPE")},
                    {"unk_token", Value::of("<unk>")},
                    {"byte_fallback", Value::of(falls_back)},
                    {"end_of_word_suffix", input.flag() ? Value::of("</w>") : Value()},
                    {"vocab", object(std::move(vocabulary))},
                    {"merges", Value::make_array({Value::of("a a"), Value::of("_ a")})}});
  const auto sequence = [](const char* name, std::vector<Value> steps) {
    return object({{"type", Value::of("Sequence")}, {name, Value::make_array(std::move(steps))}});
  };
  return tessera::dump_json(object({{"normalizer", sequence("normalizers", std::move(normal))},
                                    {"pre_tokenizer", sequence("pretokenizers", std::move(cuts))},
                                    {"decoder", sequence("decoders", std::move(decodes))},
                                    {"model", std::move(model)}}),
                            -1);
}

void use(const tessera::text::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  // at most one id per byte of the repaired (3 for 1), decomposed (33 for 3) and escaped text (2 for 1, three times),
  // and per prefix space
  if (ids.size() > 4096 * text.size() + 4096) std::abort();
  tokenizer.decode(ids);
  tessera::text::has_chat_tokens(tokenizer);
  for (const auto id : {tokenizer.end_of_text(), tokenizer.end_of_turn(), tokenizer.token_id(text)})
    if (id && (*id < 0 || *id >= tokenizer.vocab_size())) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  tessera::log::set_level(tessera::log::Level::error);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  Input input({reinterpret_cast<const char*>(data), size});
  try {
    const unsigned choice = input.byte() % 8;  // odd: the input contains the file
    const bool raw = (choice & 1) != 0;
    const std::string json = raw                          ? std::string(input.until('\0'))
                             : choice == 0 || choice == 4 ? built(input)
                             : choice == 2                ? built_wordpiece(input)
                                                          : built_pipeline(input);
    const std::string config = raw ? std::string(input.until('\0')) : "";
    const auto tokenizer = tessera::text::parse_tokenizer_json(json, "fuzzed", config);
    use(*tokenizer, input.until('\0'));
  } catch (const tessera::InputError&) {
  } catch (const tessera::Error&) {  // the regular expression engine gave up
  }
  return 0;
}
