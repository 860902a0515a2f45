// Tokenizers with the components of GPT-2, Llama-3, Qwen2, SmolLM2, DeepSeek and GPT-4o, and their added tokens. The
// ids come from Hugging Face `tokenizers`, frozen by tests/parity/tokenizer_fixtures.py (which also compares 20,000
// cases of each).

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unicode/normal_form.h>
#include <tests/paths.h>

#include <rapidcheck/gtest.h>

#include <algorithm>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text");

class Family : public ::testing::TestWithParam<const char*> {};

TEST_P(Family, GivesTheIdsOfHuggingFace) {
  const auto tokenizer = load_tokenizer(concat(fixtures, "/family_", GetParam(), ".json"));
  std::size_t compared = 0;
  for (const std::string& line : split(trim(read_file(fixtures + "/family_cases.jsonl")), '\n')) {
    const Value row = parse_json(line, "family_cases.jsonl");
    std::vector<std::int32_t> expected;
    for (const Value& id : row.at(GetParam()).items()) expected.push_back(static_cast<std::int32_t>(id.as_int()));
    EXPECT_EQ(tokenizer->encode(row.at("text").as_string()), expected) << row.at("text").as_string();
    ++compared;
  }
  EXPECT_EQ(compared, 150u);
}

INSTANTIATE_TEST_SUITE_P(All, Family,
                         ::testing::Values("gpt2", "llama3", "qwen2", "smollm2", "deepseek_v2", "deepseek_v3", "gpt4o",
                                           "added_tokens", "behaviors"),
                         [](const auto& info) { return std::string(info.param); });

TEST(LongRuns, OfBlanksAreSplitToo) {
  std::string text(std::size_t{12} << 20, ' ');  // more steps than PCRE2 allows by default
  text += 'x';
  const auto tokenizer = load_tokenizer(fixtures + "/family_llama3.json");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
}

TEST(PostProcessor, GivesPrefixAndSuffix) {
  const auto llama = load_tokenizer(fixtures + "/family_llama3.json");
  EXPECT_EQ(llama->prefix(), std::vector<std::int32_t>{1});
  EXPECT_EQ(llama->suffix(), std::vector<std::int32_t>{2});
  const auto gpt2 = load_tokenizer(fixtures + "/family_gpt2.json");
  EXPECT_TRUE(gpt2->prefix().empty());
  EXPECT_TRUE(gpt2->suffix().empty());
}

TEST(TokenizerConfig, EosTokenEndsATurn) {
  const std::string json = read_file(fixtures + "/family_smollm2.json");
  const auto with = [&](const std::string& config) { return parse_tokenizer_json(json, "t/tokenizer.json", config); };
  for (const char* config : {R"({"eos_token": "<|im_end|>"})", R"({"eos_token": {"content": "<|im_end|>"}})"}) {
    EXPECT_EQ(with(config)->end_of_turn(), 2);
    EXPECT_EQ(with(config)->end_of_text(), 0);
  }
  EXPECT_EQ(with("")->end_of_turn(), 0);
  EXPECT_EQ(with(R"({"eos_token": null})")->end_of_turn(), 0);
  EXPECT_EQ(with(R"({"eos_token": "<unheard of>"})")->end_of_turn(), 0);
  try {
    with(R"({"eos_token": 3})");
    ADD_FAILURE() << "a number is not a token";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("t/tokenizer_config.json:1:15"), std::string::npos) << error.what();
  }
}

TEST(TokenizerConfig, WithoutTheUsualNamesEosEndsTexts) {
  std::string json = read_file(fixtures + "/family_smollm2.json");
  for (std::size_t at; (at = json.find("<|endoftext|>")) != std::string::npos;) json.replace(at, 13, "<|over|>");
  EXPECT_EQ(parse_tokenizer_json(json, "t")->end_of_text(), std::nullopt);
  EXPECT_EQ(parse_tokenizer_json(json, "t", R"({"eos_token": "<|over|>"})")->end_of_text(), 0);
}

TEST(TokenId, KnowsAddedAndVocabularyTokens) {
  const auto tokenizer = load_tokenizer(fixtures + "/family_qwen2.json");
  EXPECT_EQ(tokenizer->token_id("<|im_end|>"), 2);
  const auto the = tokenizer->token_id(" the");
  ASSERT_TRUE(the.has_value());
  EXPECT_EQ(tokenizer->encode(" the"), std::vector<std::int32_t>{*the});
  EXPECT_EQ(tokenizer->token_id("no such token"), std::nullopt);
}

std::string nfc(std::string_view text) {
  std::string storage;
  return std::string(to_nfc(text, storage));
}
std::string nfd(std::string_view text) {
  std::string storage;
  return std::string(to_nfd(text, storage));
}

TEST(NormalForm, ComposesAndDecomposes) {
  EXPECT_EQ(nfc("e\u0301"), "\u00e9");
  EXPECT_EQ(nfd("\u00e9"), "e\u0301");
  EXPECT_EQ(nfc("s\u0307\u0323"), "\u1e69");  // marks are reordered first
  EXPECT_EQ(nfd("\u1e69"), "s\u0323\u0307");
  EXPECT_EQ(nfc("\u1100\u1161\u11a8"), "\uac01");  // Hangul
  EXPECT_EQ(nfd("x\uac01"), "x\u1100\u1161\u11a8");
  EXPECT_EQ(nfc("\u0958"), "\u0915\u093c");         // excluded from composition
  EXPECT_EQ(nfc("\u212b"), "\u00c5");               // a singleton
  EXPECT_EQ(nfc("a\u0334\u0301"), "\u00e1\u0334");  // an overlay in between does not block
  EXPECT_EQ(nfc("a\u0301\u0301"), "\u00e1\u0301");  // a mark of the same class blocks
  EXPECT_EQ(nfc("\u0301x"), "\u0301x");
}

TEST(NormalForm, TextInFormIsNotCopied) {
  const std::string text = "plain, d\u00e9j\u00e0 vu, \u4e2d\u6587";
  std::string storage;
  EXPECT_EQ(to_nfc(text, storage).data(), text.data());
}

RC_GTEST_PROP(NormalForm, FormsAreStable, ()) {
  // letters, marks, Hangul jamo, and characters that composition excludes
  static const std::vector<std::string> pool = {"a",      "e",      "x",      " ",      "\u0301", "\u0323",    "\u0334",
                                                "\u0345", "\u1e69", "\u00e9", "\u1100", "\u1161", "\u11a8",    "\uac00",
                                                "\u0958", "\u093c", "\u0344", "\u212b", "\uf900", "\U0001d15e"};
  std::string text;
  for (const int i : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, static_cast<int>(pool.size()))))
    text += pool[static_cast<std::size_t>(i)];
  RC_ASSERT(nfc(nfc(text)) == nfc(text));
  RC_ASSERT(nfd(nfd(text)) == nfd(text));
  RC_ASSERT(nfc(nfd(text)) == nfc(text));
  RC_ASSERT(nfd(nfc(text)) == nfd(text));
}

}  // namespace
}  // namespace tessera::text
