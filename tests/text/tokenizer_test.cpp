// Ids and texts compared with Hugging Face `tokenizers`, frozen by tests/parity/tokenizer_fixtures.py.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/text/tokenizer.h>
#include <tests/paths.h>

#include <atomic>
#include <thread>
#include <vector>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text");

struct Case {
  std::string text;
  std::vector<std::int32_t> ids, prefix_space_ids;
};

std::vector<std::int32_t> to_ids(const Value& value) {
  std::vector<std::int32_t> ids;
  for (const Value& id : value.items()) ids.push_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = [] {
    std::vector<Case> read;
    for (const std::string& line : split(trim(read_file(fixtures + "/cases.jsonl")), '\n')) {
      const Value row = parse_json(line, "cases.jsonl");
      read.push_back({row.at("text").as_string(), to_ids(row.at("ids")), to_ids(row.at("prefix_space_ids"))});
    }
    return read;
  }();
  return all;
}

TEST(BpeTokenizer, GivesTheIdsOfHuggingFace) {
  const auto tokenizer = load_tokenizer(fixtures);
  ASSERT_GE(cases().size(), 300u);
  for (const Case& c : cases()) EXPECT_EQ(tokenizer->encode(c.text), c.ids) << c.text;
}

TEST(BpeTokenizer, PrefixSpaceLegacyMergesAndStrippingTokens) {
  const auto tokenizer = load_tokenizer(fixtures + "/prefix_space.json");
  for (const Case& c : cases()) EXPECT_EQ(tokenizer->encode(c.text), c.prefix_space_ids) << c.text;
}

TEST(BpeTokenizer, DecodesToTheSameBytes) {
  const auto tokenizer = load_tokenizer(fixtures);
  for (const Case& c : cases()) EXPECT_EQ(tokenizer->decode(c.ids), c.text);
}

TEST(BpeTokenizer, ThreadsShareOneObject) {
  const auto tokenizer = load_tokenizer(fixtures);
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&] {
        for (const Case& c : cases()) wrong += tokenizer->encode(c.text) != c.ids;
      });
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(BpeTokenizer, IllFormedTextBecomesReplacementCharacters) {
  const auto tokenizer = load_tokenizer(fixtures);
  const auto decoded = [&](std::string_view text) { return tokenizer->decode(tokenizer->encode(text)); };
  const std::string r = "\xEF\xBF\xBD";  // U+FFFD; the expectations are Python's bytes.decode("utf-8", "replace")
  EXPECT_EQ(decoded("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(decoded("\xE4\xB8"), r);  // a truncated character is one piece
  EXPECT_EQ(decoded("\xF0\x9F\x99x"), r + "x");
  EXPECT_EQ(decoded("\xED\xA0\x80"), r + r + r);          // a surrogate
  EXPECT_EQ(decoded("\xC0\xAF"), r + r);                  // overlong
  EXPECT_EQ(decoded("\xF4\x90\x80\x80"), r + r + r + r);  // beyond U+10FFFF
}

TEST(BpeTokenizer, SpecialTokensAndSizes) {
  const auto tokenizer = load_tokenizer(fixtures);
  EXPECT_EQ(tokenizer->vocab_size(), 1000);
  ASSERT_TRUE(tokenizer->end_of_text().has_value());
  EXPECT_EQ(*tokenizer->end_of_text(), 0);
  EXPECT_EQ(tokenizer->decode(std::vector<std::int32_t>{0}), "<|endoftext|>");
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{1000}), InputError);
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{-1}), InputError);
}

TEST(BpeTokenizer, LongWordsMergeAsShortOnesDo) {
  // 1 MB of one letter must take O(n log n) and decode to itself.
  const auto tokenizer = load_tokenizer(fixtures);
  const std::string word(1 << 20, 'e');
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(word)), word);
}

TEST(BpeTokenizer, SavesWhatItRead) {
  const TemporaryFolder folder;
  const auto tokenizer = load_tokenizer(fixtures);
  tokenizer->save(folder.path());
  EXPECT_EQ(read_file(path_join(folder.path(), "tokenizer.json")), read_file(fixtures + "/tokenizer.json"));
  EXPECT_EQ(read_json(path_join(folder.path(), "tokenizer_config.json")).at("eos_token").as_string(), "<|endoftext|>");
  EXPECT_EQ(load_tokenizer(folder.path())->encode("In the beginning"), tokenizer->encode("In the beginning"));
}

TEST(ByteTokenizer, BytesAndTheEndOfText) {
  const auto tokenizer = load_tokenizer("byte");
  const std::string text = std::string(1, '\0') + "\xFF h\xC3\xA9<|endoftext|>!";
  const auto ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->vocab_size(), 257);
  EXPECT_EQ(tokenizer->end_of_text(), 256);
  EXPECT_EQ(ids.size(), text.size() - std::string_view("<|endoftext|>").size() + 1);
  EXPECT_EQ(tokenizer->decode(ids), text);
  EXPECT_THROW(tokenizer->decode(std::vector<std::int32_t>{257}), InputError);
}

TEST(ByteTokenizer, SavedItReadsBackAsTheSame) {
  const TemporaryFolder folder;
  const auto byte = load_tokenizer("byte");
  byte->save(folder.path());
  const auto saved = load_tokenizer(folder.path());
  EXPECT_EQ(saved->vocab_size(), 257);
  EXPECT_EQ(saved->end_of_text(), 256);
  for (const Case& c : cases()) EXPECT_EQ(saved->encode(c.text), byte->encode(c.text));
}

}  // namespace
}  // namespace tessera::text
