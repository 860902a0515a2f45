// Tokenizers with the settings of Llama 2, Mistral, Gemma, Phi-3, T5, XLM-R, ..., and one for every component of a
// tokenizer.json. Ids and texts come from Hugging Face `tokenizers`, frozen by tests/parity/tokenizer_components.py
// (which, like tokenizer_pipelines.py, also compares thousands of cases of each).

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/utf8.h>
#include <tests/paths.h>

#include <rapidcheck/gtest.h>

#include <map>
#include <set>

namespace tessera::text {
namespace {

const std::string folder = tessera::testing::source_path("tests/fixtures/text/pipeline");

std::vector<Value> rows_of(const std::string& name) {
  std::vector<Value> rows;
  for (const std::string& line : split(trim(read_file(concat(folder, "/", name))), '\n'))
    rows.push_back(parse_json(line, name));
  return rows;
}

std::vector<std::int32_t> ids_of(const Value& list) {
  std::vector<std::int32_t> ids;
  for (const Value& id : list.items()) ids.push_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

/// The 256 byte tokens with words that end with "</w>", so that word boundaries are visible in the ids.
Value byte_model() {
  std::vector<Value::Member> vocabulary;
  constexpr std::string_view digits = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte)
    vocabulary.emplace_back(std::string("<0x") + digits[static_cast<std::size_t>(byte) >> 4] +
                                digits[static_cast<std::size_t>(byte) & 15] + '>',
                            Value::of(byte));
  return Value::make_object({{"type", Value::of("BPE")},
                             {"byte_fallback", Value::of(true)},
                             {"end_of_word_suffix", Value::of("</w>")},
                             {"vocab", Value::make_object(std::move(vocabulary))},
                             {"merges", Value::make_array()}});
}

std::shared_ptr<const Tokenizer> tokenizer_of(const Value& row) {
  Value tree = row.at("tokenizer");
  if (tree.at("model").is_string()) tree.set("model", byte_model());
  return parse_tokenizer_json(dump_json(tree, -1), row.at("name").as_string());
}

TEST(Components, GiveWhatHuggingFaceGives) {
  std::size_t compared = 0;
  for (const Value& row : rows_of("components.jsonl")) {
    const std::string& name = row.at("name").as_string();
    const auto tokenizer = tokenizer_of(row);
    for (const Value& found : row.at("cases").items()) {
      const auto& one = found.items();
      ++compared;
      if (name.starts_with("decoder")) {
        EXPECT_EQ(replace_ill_formed(tokenizer->decode(ids_of(one[0]))), one[1].as_string())
            << name << dump_json(one[0]);
      } else if (name.starts_with("post")) {
        const Encoding single = tokenizer->encode_text(one[0].as_string());
        const Encoding pair = tokenizer->encode_pair(one[0].as_string(), one[1].as_string());
        EXPECT_EQ(single.ids, ids_of(one[2])) << name;
        EXPECT_EQ(single.types, ids_of(one[3])) << name;
        EXPECT_EQ(pair.ids, ids_of(one[4])) << name;
        EXPECT_EQ(pair.types, ids_of(one[5])) << name;
      } else {
        EXPECT_EQ(tokenizer->encode(one[0].as_string()), ids_of(one[1])) << name << ": " << one[0].as_string();
      }
    }
  }
  EXPECT_GT(compared, 1300u);
}

const std::map<std::string, std::shared_ptr<const Tokenizer>>& families() {
  static const auto all = [] {
    std::map<std::string, std::shared_ptr<const Tokenizer>> made;
    for (const Value& row : rows_of("families.jsonl")) made[row.at("name").as_string()] = tokenizer_of(row);
    return made;
  }();
  return all;
}

TEST(PipelineFamilies, GiveTheIdsAndTextsOfHuggingFace) {
  std::set<std::string> seen;
  for (const Value& row : rows_of("family_cases.jsonl")) {
    const std::string& text = row.at("text").as_string();
    for (const auto& [name, tokenizer] : families()) {
      const auto& expected = row.at(name).items();
      const std::vector<std::int32_t> ids = ids_of(expected[0]);
      EXPECT_EQ(tokenizer->encode(text), ids) << name << ": " << text;
      EXPECT_EQ(replace_ill_formed(tokenizer->decode(ids)), expected[1].as_string()) << name << ": " << text;
      seen.insert(name);
    }
  }
  EXPECT_EQ(seen, (std::set<std::string>{"albert", "deepseek_v3", "gemma", "gpt_neox", "llama2", "mistral_v03", "phi3",
                                         "t5", "t5_now", "tinyllama", "xlmr"}));
}

TEST(PipelineFamilies, KnowTheirSpecialTokens) {
  const auto& llama = *families().at("llama2");
  EXPECT_EQ(llama.prefix(), llama.encode("<s>"));
  EXPECT_EQ(llama.token_id("</s>"), 2);
  const auto& xlmr = *families().at("xlmr");
  const Encoding pair = xlmr.encode_pair("the earth", "and the heaven", 9);
  EXPECT_EQ(pair.ids.size(), 9u);
  EXPECT_EQ(pair.ids.front(), 0);
  EXPECT_EQ(pair.ids.back(), 2);
}

RC_GTEST_PROP(PipelineFamilies, DecodingPieceByPieceGivesTheWholeText, ()) {
  const std::string text = replace_ill_formed(*rc::gen::arbitrary<std::string>()) + " the heaven \xF0\x9F\x99\x82 x";
  for (const char* name : {"llama2", "mistral_v03", "gemma"}) {
    const Tokenizer& tokenizer = *families().at(name);
    const std::vector<std::int32_t> ids = tokenizer.encode(text);
    std::string pieces;
    for (std::size_t i = 0; i < ids.size(); ++i)
      pieces += tokenizer.decode_after(std::span(ids).first(i), std::span(ids).subspan(i, 1));
    RC_ASSERT(pieces == tokenizer.decode(ids));
  }
}

/// Llama 2's tokenizer treats a text as one word; cutting it where no merge applies must not change the ids.
RC_GTEST_PROP(PipelineFamilies, PartsOfWordsDoNotDependOnEachOther, ()) {
  const auto words = *rc::gen::container<std::vector<std::string>>(
      rc::gen::element<std::string>("the", " ", "  ", "a", "\n", "earth", "\xE2\x96\x81", "12", "\xC3\xA9", "."));
  std::string text;
  for (const std::string& word : words) text += word;
  static const auto tokenizers = [] {
    Value row = rows_of("families.jsonl").front();
    Value tree = row.at("tokenizer"), model = tree.at("model");
    auto cut = tokenizer_of(row);
    model.set("ignore_merges", Value::of(true));  // disables cutting
    tree.set("model", model);
    row.set("tokenizer", tree);
    return std::pair(std::move(cut), tokenizer_of(row));
  }();
  const auto& [cut, whole] = tokenizers;
  if (whole->token_id(text)) return;  // the text is itself a token
  RC_ASSERT(cut->encode("x" + text + "<q>") == whole->encode("x" + text + "<q>"));
}

TEST(Pipeline, SavesWhatItWasReadFrom) {
  const std::string json = dump_json(rows_of("families.jsonl").front().at("tokenizer"));
  const TemporaryFolder out;
  parse_tokenizer_json(json, "t.json")->save(out.path());
  EXPECT_EQ(read_file(path_join(out.path(), "tokenizer.json")), json);
  EXPECT_EQ(load_tokenizer(out.path())->encode("In the beginning"),
            families().at("llama2")->encode("In the beginning"));
}

std::string complaint(const std::string& json) {
  try {
    parse_tokenizer_json(json, "t.json")->encode("z");
  } catch (const InputError& error) {
    return error.what();
  }
  return "";
}

TEST(Pipeline, BadFilesAreNamed) {
  const std::string model = R"("model": {"type": "WordLevel", "vocab": {"a": 0, "?": 1}, "unk_token": "?"})";
  const auto with = [&](const std::string& member) { return complaint("{" + member + ", " + model + "}"); };
  const auto expect = [](const std::string& message, const std::string& needle) {
    EXPECT_NE(message.find(needle), std::string::npos) << message;
  };
  EXPECT_EQ(with(R"("pre_tokenizer": null)"), "");
  expect(with(R"("pre_tokenizer": {"type": "Odd"})"),
         "t.json:1:28: the pre_tokenizer Odd is not supported; supported: Byte");
  expect(with(R"("decoder": {"type": "Odd"})"), "the decoder Odd is not supported; supported: ByteLevel, ByteFallback");
  expect(with(R"("normalizer": {"type": "Odd"})"), "the normalizer Odd is not supported; supported: NFC");
  expect(with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "ab"})"), "expected one character");
  expect(with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"})"),
         "known: always");
  expect(with(R"("pre_tokenizer": {"type": "Metaspace", "replacement": "_", "prepend_scheme": "first",
                 "add_prefix_space": false})"),
         "contradicts");
  expect(with(R"("pre_tokenizer": {"type": "FixedLength", "length": 0})"), "at least 1");
  expect(with(R"("decoder": {"type": "Strip", "content": " ", "start": -1, "stop": 0})"), "negative");
  expect(with(R"("normalizer": {"type": "Replace", "pattern": {"String": ""}, "content": "x"})"), "empty Replace");
  expect(with(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA"})"), "not a multiple of 4");
  expect(with(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA?="})"), "not base64");
  expect(with(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "AA=="})"),
         "too few for its size field");
  expect(with(R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": "/wAAAA=="})"), "255 bytes");
  expect(complaint(R"({"model": {"type": "Odd", "vocab": {}}})"), "supported: BPE, Unigram, WordLevel, WordPiece");
  expect(complaint(R"({"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "?"}})"), "no unknown token");
  expect(complaint(R"({"model": {"type": "Unigram", "vocab": [["a", 0]], "unk_id": 1}})"), "outside the 1 pieces");
  expect(complaint(R"({"model": {"type": "Unigram", "vocab": [["a", 0]]}})"), "no unknown token");
  expect(complaint(R"({"model": {"type": "Unigram", "vocab": [["a"]]}})"), "expected [piece, score]");
  expect(complaint(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "unk_token": "?"}})"), "unk_token");
  expect(complaint(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [], "dropout": 0.1}})"), "dropout");
  expect(complaint(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"]}})"),
         "needs the token \"ab\"");
  expect(complaint(R"({"model": {"type": "BPE", "vocab": {"a": 0, "b": 1}, "merges": ["a b"],
                    "continuing_subword_prefix": "##"}})"),
         "continuing_subword_prefix");
}

}  // namespace
}  // namespace tessera::text
