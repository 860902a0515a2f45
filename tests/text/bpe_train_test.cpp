// Training of byte-level BPE gives Hugging Face's merges for any number of threads.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/text/bpe/bpe_train.h>
#include <tessera/text/bpe/word_count.h>
#include <tests/paths.h>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text");

TEST(BpeTrain, LearnsTheMergesOfHuggingFace) {
  BpeTrainOptions options;
  options.vocab_size = 400;
  const BpeFile file = train_bpe({read_file(fixtures + "/train.txt")}, options);
  EXPECT_EQ(file.vocabulary.size(), 400u);
  std::vector<std::pair<std::string, std::string>> expected;
  const Value merges = read_json(fixtures + "/train_merges.json");
  for (const Value& pair : merges.items())
    expected.emplace_back(pair.items()[0].as_string(), pair.items()[1].as_string());
  EXPECT_EQ(file.merges, expected);
  EXPECT_EQ(file.vocabulary[0].first, "<|endoftext|>");
  EXPECT_EQ(file.vocabulary[1].first, "!");
}

TEST(BpeTrain, WhatItWritesLoadsAndShortensText) {
  const std::string text = read_file(fixtures + "/train.txt");
  BpeTrainOptions options;
  options.vocab_size = 600;
  const auto tokenizer = parse_tokenizer_json(tokenizer_json(train_bpe({text}, options)), "trained.json");
  const auto ids = tokenizer->encode(text);
  EXPECT_EQ(tokenizer->vocab_size(), 600);
  EXPECT_LT(ids.size() * 2, text.size());
  EXPECT_EQ(tokenizer->decode(ids), text);
}

TEST(BpeTrain, DocumentsAreCountedApart) {
  BpeTrainOptions options;
  options.vocab_size = 258;
  // "b" + "c" is frequent only across document boundaries; within documents, "a" + "b" is
  EXPECT_EQ(train_bpe({"ab", "cab", "cab"}, options).merges,
            (std::vector<std::pair<std::string, std::string>>{{"a", "b"}}));
}

TEST(BpeTrain, RarePairsAndShortTexts) {
  BpeTrainOptions options;
  options.vocab_size = 5000;
  const BpeFile all = train_bpe({"low low low lower"}, options);
  EXPECT_LT(all.vocabulary.size(), 300u);  // no pairs are left
  options.min_frequency = 3;
  EXPECT_LT(train_bpe({"low low low lower"}, options).merges.size(), all.merges.size());
}

TEST(BpeTrain, BadRequests) {
  BpeTrainOptions options;
  options.vocab_size = 256;
  EXPECT_THROW(train_bpe({"text"}, options), InputError);
  options.vocab_size = 300;
  EXPECT_THROW(train_bpe({}, options), InputError);
  EXPECT_THROW(train_bpe({"", ""}, options), InputError);
}

TEST(WordCount, ThreadsChangeNothing) {
  std::string text;
  for (int i = 0; i < 60; ++i) text += read_file(fixtures + "/train.txt") + (i % 3 ? "\n\n  \xC3\xA9" : "\n \n");
  ASSERT_GT(text.size(), std::size_t{4} << 18);  // enough for four parts
  const auto alone = count_words(text, 1, {});
  EXPECT_EQ(count_words(text, 4, {}), alone);
  std::size_t bytes = 0;
  for (const auto& [word, count] : alone) bytes += word.size() * static_cast<std::size_t>(count);
  EXPECT_EQ(bytes, text.size());
}

}  // namespace
}  // namespace tessera::text
