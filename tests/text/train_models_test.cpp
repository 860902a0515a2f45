// Training of WordPiece and Unigram, against Hugging Face's trainers on the same text.

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/unigram/seed_pieces.h>
#include <tessera/text/unigram/unigram_train.h>
#include <tessera/text/wordpiece/wordpiece_train.h>
#include <tests/paths.h>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text");

std::string training_text() { return read_file(fixtures + "/train.txt"); }

std::size_t tokens_of(const Tokenizer& tokenizer, const std::string& text) {
  std::size_t tokens = 0;
  for (const std::string& line : split(text, '\n')) tokens += tokenizer.encode(line + "\n").size();
  return tokens;
}

/// Pairs of equal frequency are many in a short text, and Hugging Face numbers characters by the order of a hash table.
TEST(TrainWordPiece, LearnsTheVocabularyOfHuggingFace) {
  WordPieceTrainOptions options;
  options.vocab_size = 400;
  const Value json = parse_json(train_wordpiece({training_text()}, options), "trained");
  const Value fixture = read_json(fixtures + "/train_models.json");
  std::set<std::string> expected;
  for (const Value& token : fixture.at("wordpiece").items()) expected.insert(token.as_string());
  std::size_t shared = 0;
  for (const auto& [token, id] : json.at("model").at("vocab").members()) shared += expected.contains(token);
  EXPECT_EQ(json.at("model").at("vocab").members().size(), 400u);
  EXPECT_GE(shared, 390u);
}

TEST(TrainWordPiece, WhatItWritesLoadsAndDoesNotDependOnThreads) {
  WordPieceTrainOptions options;
  options.vocab_size = 500;
  const std::string one = train_wordpiece({training_text()}, options);
  options.threads = 3;
  EXPECT_EQ(train_wordpiece({training_text()}, options), one);
  const auto tokenizer = parse_tokenizer_json(one, "trained.json");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode("In the beginning God created")), "In the beginning God created");
  options.lowercase = true;
  const auto uncased = parse_tokenizer_json(train_wordpiece({training_text()}, options), "trained.json");
  EXPECT_EQ(uncased->encode("GOD"), uncased->encode("god"));
}

TEST(TrainWordPiece, TheAlphabetMayBeLimited) {
  WordPieceTrainOptions options;
  options.vocab_size = 30;
  options.limit_alphabet = 3;
  const auto tokenizer = parse_tokenizer_json(train_wordpiece({"aab aab abc abd ab aa ab"}, options), "trained.json");
  EXPECT_EQ(tokenizer->encode("d"), (std::vector<std::int32_t>{1}));  // [UNK]: a, b and one of c and d
  options.vocab_size = 8;
  EXPECT_THROW(train_wordpiece({training_text()}, options), InputError);
  EXPECT_THROW(train_wordpiece({"", " \n"}, options), InputError);
}

TEST(TrainUnigram, NeedsAsManyTokensAsHuggingFacesModel) {
  UnigramTrainOptions options;
  options.vocab_size = 300;
  const std::string json = train_unigram({training_text()}, options);
  const auto tokenizer = parse_tokenizer_json(json, "trained.json");
  EXPECT_EQ(tokenizer->vocab_size(), 300);
  const std::string text = training_text();
  std::size_t tokens = 0;
  for (std::size_t begin = 0; begin < text.size();) {  // lines with their ends, as theirs were counted
    const std::size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    tokens += tokenizer->encode(std::string_view(text).substr(begin, end - begin)).size();
    begin = end;
  }
  const auto theirs = static_cast<double>(read_json(fixtures + "/train_models.json").at("unigram_tokens").as_int());
  EXPECT_NEAR(static_cast<double>(tokens) / theirs, 1, 0.02);
  options.threads = 3;
  EXPECT_EQ(train_unigram({training_text()}, options), json);
}

TEST(TrainUnigram, HasEveryCharacterAndGivesTextsBack) {
  UnigramTrainOptions options;
  options.vocab_size = 400;
  const std::string rare = training_text() + "na\u00efve \u4e2d\u6587 \U0001f600\n";
  const auto tokenizer = parse_tokenizer_json(train_unigram({rare}, options), "trained.json");
  for (const char* text : {"In the beginning God created the heaven", "na\u00efve \u4e2d\u6587 \U0001f600"})
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text);
  EXPECT_EQ(*tokenizer->token_id("</s>"), 1);
  EXPECT_LT(2 * tokens_of(*tokenizer, rare), rare.size());
}

TEST(TrainUnigram, BadRequests) {
  UnigramTrainOptions options;
  options.vocab_size = 20;  // fewer than characters
  EXPECT_THROW(train_unigram({training_text()}, options), InputError);
  options.vocab_size = 3;
  EXPECT_THROW(train_unigram({training_text()}, options), InputError);
  EXPECT_THROW(train_unigram({""}, UnigramTrainOptions()), InputError);
}

/// Substrings that cannot grow without becoming rarer, with occurrences x characters.
TEST(SeedPieces, AreTheRepeatsOfTheDistinctWords) {
  const auto pieces = seed_pieces({{"abcab", 5}, {"abx", 1}, {"\u00e9\u00e8ab", 2}}, 16, 1000);
  const std::vector<std::pair<std::string, double>> expected = {{"a", 13},     {"b", 13}, {"c", 5}, {"\u00e8", 2},
                                                                {"\u00e9", 2}, {"x", 1},  {"ab", 8}};
  EXPECT_EQ(pieces, expected);
  EXPECT_EQ(seed_pieces({{"abcab", 5}}, 1, 1000).size(), 3u);
  EXPECT_EQ(seed_pieces({{"abcab", 5}}, 16, 2).size(), 3u);  // characters are never left out
}

}  // namespace
}  // namespace tessera::text
