// WordPiece tokenizers with the components of BERT. Ids, pairs and texts come from Hugging Face `tokenizers`, frozen by
// tests/parity/wordpiece_fixtures.py (which also compares 20,000 cases of each).

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/value.h>
#include <tessera/text/tokenizer_json.h>
#include <tessera/text/wordpiece/bert_characters.h>
#include <tessera/text/wordpiece/wordpiece_tokenizer.h>
#include <tests/paths.h>

#include <rapidcheck/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text/wordpiece");

std::shared_ptr<const WordPieceTokenizer> load(const std::string& path) {
  return std::dynamic_pointer_cast<const WordPieceTokenizer>(load_tokenizer(path));
}

std::vector<std::int32_t> to_ids(const Value& value) {
  std::vector<std::int32_t> ids;
  for (const Value& id : value.items()) ids.push_back(static_cast<std::int32_t>(id.as_int()));
  return ids;
}

const std::vector<Value>& cases() {
  static const std::vector<Value> all = [] {
    std::vector<Value> rows;
    for (const std::string& line : split(trim(read_file(fixtures + "/cases.jsonl")), '\n'))
      rows.push_back(parse_json(line, "cases.jsonl"));
    return rows;
  }();
  return all;
}

class WordPieceFile : public ::testing::TestWithParam<const char*> {};

TEST_P(WordPieceFile, GivesTheIdsOfHuggingFace) {
  const auto tokenizer = load(concat(fixtures, "/", GetParam(), ".json"));
  ASSERT_TRUE(tokenizer);
  ASSERT_GE(cases().size(), 180u);
  for (const Value& row : cases())
    EXPECT_EQ(tokenizer->encode(row.at("text").as_string()), to_ids(row.at(GetParam()))) << row.at("text").as_string();
}

INSTANTIATE_TEST_SUITE_P(All, WordPieceFile, ::testing::Values("uncased", "cased", "options", "accents", "sequence"),
                         [](const auto& info) { return std::string(info.param); });

TEST(WordPiece, DecodesAsHuggingFace) {
  for (const char* name : {"uncased", "options"}) {
    const auto tokenizer = load(concat(fixtures, "/", name, ".json"));
    for (const Value& row : cases())
      EXPECT_EQ(tokenizer->decode(to_ids(row.at(name))), row.at(concat(name, "_decoded")).as_string());
  }
}

TEST(WordPiece, PairsGetSpecialTokensAndTypes) {
  const auto tokenizer = load(fixtures + "/uncased.json");
  for (const Value& row : cases()) {
    const Encoding both = tokenizer->encode_pair(row.at("text").as_string(), row.at("pair").as_string());
    EXPECT_EQ(both.ids, to_ids(row.at("pair_ids")));
    EXPECT_EQ(both.types, to_ids(row.at("pair_types")));
  }
}

TEST(Tokenizer, encodes_pairs_without_a_cast) {
  const std::shared_ptr<const Tokenizer> bert = load_tokenizer(fixtures + "/uncased.json"),
                                         bytes = load_tokenizer("byte");
  const Value& row = cases().front();
  const Encoding both = bert->encode_pair(row.at("text").as_string(), row.at("pair").as_string());
  EXPECT_EQ(both.ids, to_ids(row.at("pair_ids")));
  EXPECT_EQ(both.types, to_ids(row.at("pair_types")));
  EXPECT_EQ(bytes->encode_text("abc").ids, bytes->encode("abc"));
  EXPECT_EQ(bytes->encode_text("abc", 2).ids, bytes->encode("ab"));
  EXPECT_EQ(bytes->encode_text("abc").types, (std::vector<std::int32_t>{0, 0, 0}));
  EXPECT_THROW(bytes->encode_pair("a", "b"), InputError) << "no template for two texts";
}

TEST(WordPiece, CutsTexts) {
  const auto tokenizer = load(fixtures + "/uncased.json");
  const std::vector<std::int32_t> all =
      tokenizer->encode_text("in the beginning god created the heaven and the earth").ids;
  ASSERT_GT(all.size(), 12u);
  EXPECT_EQ(all.front(), tokenizer->special().cls);
  EXPECT_EQ(all.back(), tokenizer->special().sep);
  std::vector<std::int32_t> expected(all.begin(), all.begin() + 7);
  expected.push_back(*tokenizer->special().sep);
  EXPECT_EQ(tokenizer->encode_text("in the beginning god created the heaven and the earth", 8).ids, expected);
  EXPECT_EQ(tokenizer->encode_text("in the beginning", 1).ids.size(), 2u);  // always at least the special tokens
  // longest_first: the numbers of ids that Hugging Face keeps of 10 and 2, 10 and 9 (3 of 11 are special)
  const std::string ten = "a a a a a a a a a a", nine = "b b b b b b b b b", two = "b b";
  const auto kept = [&](const std::string& a, const std::string& b) {
    const Encoding e = tokenizer->encode_pair(a, b, 11);
    const auto second = std::count(e.types.begin(), e.types.end(), 1) - 1;
    return std::pair<long, long>(static_cast<long>(e.ids.size()) - second - 3, second);
  };
  EXPECT_EQ(kept(ten, two), std::pair(6L, 2L));
  EXPECT_EQ(kept(two, ten), std::pair(2L, 6L));
  EXPECT_EQ(kept(ten, nine), std::pair(4L, 4L));
}

TEST(WordPiece, TheOlderProcessorGivesTheSame) {
  const auto cased = load(fixtures + "/cased.json");  // BertProcessing
  EXPECT_EQ(cased->prefix(), std::vector<std::int32_t>{2});
  EXPECT_EQ(cased->suffix(), std::vector<std::int32_t>{3});
  const Encoding both = cased->encode_pair("a", "b");
  EXPECT_EQ(both.types, (std::vector<std::int32_t>{0, 0, 0, 1, 1}));
}

TEST(VocabTxt, IsTheSameTokenizer) {
  const TemporaryFolder folder;
  write_file_atomically(path_join(folder.path(), "vocab.txt"), read_file(fixtures + "/vocab.txt"));
  const auto tokenizer = load(folder.path());
  const auto other = load(path_join(folder.path(), "vocab.txt"));
  ASSERT_TRUE(tokenizer);
  for (const Value& row : cases()) {
    EXPECT_EQ(tokenizer->encode(row.at("text").as_string()), to_ids(row.at("uncased")));
    EXPECT_EQ(tokenizer->encode_pair(row.at("text").as_string(), row.at("pair").as_string()).ids,
              to_ids(row.at("pair_ids")));
  }
  EXPECT_EQ(tokenizer->special().mask, 4);
  EXPECT_EQ(other->special().pad, 0);
  EXPECT_TRUE(tokenizer->is_special(3));
  EXPECT_FALSE(tokenizer->is_special(30));
}

TEST(VocabTxt, ReadsItsConfiguration) {
  const TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    write_file_atomically(path_join(folder.path(), name), text);
  };
  write("vocab.txt", "<u>\r\n<s>\r\n<p>\r\n<c>\r\n<m>\r\nA\r\na\r\n\xC3\xA9\r\na\r\n");
  const std::string names =
      R"("unk_token": "<u>", "sep_token": "<s>", "pad_token": {"content": "<p>"}, "cls_token": "<c>",
                               "mask_token": "<m>")";
  write("tokenizer_config.json", concat("{", names, R"(, "do_lower_case": false})"));
  const auto tokenizer = load(folder.path());
  EXPECT_EQ(tokenizer->encode("A a \xC3\xA9 x"), (std::vector<std::int32_t>{5, 8, 7, 0}));  // last wins
  EXPECT_EQ(tokenizer->prefix(), std::vector<std::int32_t>{3});
  EXPECT_EQ(tokenizer->special().pad, 2);
  write("tokenizer_config.json", concat("{", names, R"(, "do_lower_case": true, "strip_accents": false})"));
  EXPECT_EQ(load(folder.path())->encode("A \xC3\x89"), (std::vector<std::int32_t>{8, 7}));

  const TemporaryFolder copy;
  tokenizer->save(copy.path());
  EXPECT_EQ(load(copy.path())->encode("A a \xC3\xA9 x"), tokenizer->encode("A a \xC3\xA9 x"));
}

TEST(VocabTxt, MustHoldTheSpecialTokens) {
  const TemporaryFolder folder;
  write_file_atomically(path_join(folder.path(), "vocab.txt"), "[PAD]\n[UNK]\n[CLS]\n[SEP]\na\n");
  try {
    load_tokenizer(folder.path());
    ADD_FAILURE();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("vocab.txt: the mask_token \"[MASK]\" is not among its 5 lines"),
              std::string::npos)
        << error.what();
  }
}

TEST(WordPieceConfig, ReplacesTheNormalizersFlags) {
  const std::string json = read_file(fixtures + "/uncased.json");
  const auto uncased = parse_tokenizer_json(json, "t/tokenizer.json", R"({"do_lower_case": true})");
  const auto cased = parse_tokenizer_json(json, "t/tokenizer.json", R"({"do_lower_case": false})");
  EXPECT_EQ(uncased->encode("the"), uncased->encode("THE"));
  EXPECT_NE(cased->encode("the"), cased->encode("THE"));
}

TEST(WordPieceFile, RefusesWhatItDoesNotKnow) {
  Value tree = parse_json(read_file(fixtures + "/uncased.json"), "t.json");
  const auto expect_refused = [](Value file, const char* key, const char* json, const std::string& message) {
    file.set(key, parse_json(json, "x"));
    try {
      parse_tokenizer_json(dump_json(file), "t.json");
      ADD_FAILURE() << message;
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(message), std::string::npos) << error.what();
    }
  };
  expect_refused(tree, "model", R"({"type": "WordPiece", "unk_token": "?", "vocab": {"a": 0}})",
                 "the unk_token \"?\" is not in the vocabulary");
  expect_refused(tree, "model", R"({"type": "WordPiece", "unk_token": "a", "vocab": {"a": 0, "b": 0}})",
                 "token id 0 is given twice");
  expect_refused(tree, "added_tokens", R"([{"id": 700, "content": "\u200b", "normalized": true}])",
                 "is empty after normalization");
  expect_refused(tree, "post_processor", R"({"type": "TemplateProcessing", "single": [{"Sequence": {"id": "A"}}],
      "pair": [{"Sequence": {"id": "A"}}, {"Sequence": {"id": "A"}}], "special_tokens": {}})",
                 "the template for two texts");
}

TEST(WordPiece, ThreadsShareOneObject) {
  const auto tokenizer = load(fixtures + "/uncased.json");
  std::atomic<int> wrong{0};
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 3; ++t)
      threads.emplace_back([&] {
        for (const Value& row : cases())
          wrong += tokenizer->encode(row.at("text").as_string()) != to_ids(row.at("uncased"));
      });
  }
  EXPECT_EQ(wrong, 0);
}

/// The reference definition, character by character and without length tables.
std::vector<std::int32_t> by_definition(const WordPieceTokenizer& tokenizer, const std::string& word) {
  std::vector<std::int32_t> ids;
  for (std::size_t at = 0; at < word.size();) {
    std::size_t end = word.size();
    std::optional<std::int32_t> id;
    for (; end > at && !id; id ? end : --end) id = tokenizer.token_id((at > 0 ? "##" : "") + word.substr(at, end - at));
    if (!id) return {*tokenizer.special().unknown};
    ids.push_back(*id);
    at = end;
  }
  return ids;
}

RC_GTEST_PROP(WordPiece, TakesTheLongestTokenEachTime, (const std::vector<std::uint8_t>& letters)) {
  static const auto tokenizer = load(fixtures + "/uncased.json");
  std::string word;
  for (const std::uint8_t letter : letters) word += "abcdefghilmnorstuwy"[letter % 19];
  if (word.size() > 100) word.resize(100);
  RC_ASSERT(tokenizer->encode(word) == by_definition(*tokenizer, word));
}

RC_GTEST_PROP(BertCharacters, NormalizingTwiceChangesNothing, (const std::vector<std::uint32_t>& points)) {
  std::string text;
  for (const std::uint32_t p : points)
    if (const std::uint32_t c = p % 0x3000; c > 0) append_utf8(text, c);
  std::string once, twice;
  for (const auto& step : {clean_text, remove_marks, to_lower_case}) {
    const std::string first(step(text, once));
    RC_ASSERT(std::string(step(first, twice)) == first);
  }
}

}  // namespace
}  // namespace tessera::text
