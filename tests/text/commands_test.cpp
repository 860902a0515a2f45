// tessera tokenizer train and tessera tokenize as a user runs them.

#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/base/value.h>
#include <tessera/format/megatron_indexed.h>
#include <tessera/launch/agent/process.h>
#include <tessera/text/tokenizer.h>
#include <tests/own_folder.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

#include <algorithm>

namespace tessera::text {
namespace {

const std::string fixtures = tessera::testing::source_path("tests/fixtures/text");

class TextCommands : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }

  static launch::Captured run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), tessera::testing::build_path("tessera"));
    return launch::run_and_capture(arguments, {}, tessera::testing::patience(120));
  }

  /// Expects exit code 2, a message that contains `needle`, and no new files in the folder.
  void expect_refused(const std::vector<std::string>& arguments, const std::string& needle) {
    const launch::Captured result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.err;
    EXPECT_NE(result.err.find(needle), std::string::npos) << result.err;
    EXPECT_FALSE(path_exists(at("out"))) << needle;
    EXPECT_FALSE(path_exists(at("out.bin"))) << needle;
  }

  TemporaryFolder folder_;
};

TEST_F(TextCommands, TrainsBytePairsAndNamesWhatTrainsOthers) {
  for (const char* model : {"unigram", "wordpiece"})
    expect_refused({"tokenizer", "train", "--train_file", fixtures + "/train.txt", "--output", at("out"),
                    "--vocab_size", "300", "--model", model},
                   "Hugging Face's tokenizers trains other models");
  EXPECT_FALSE(path_exists(at("out")));
  ASSERT_EQ(run({"tokenizer", "train", "--train_file", fixtures + "/train.txt", "--output", at("out"), "--vocab_size",
                 "300", "--model", "bpe"})
                .exit_code,
            0);
  EXPECT_EQ(load_tokenizer(at("out"))->vocab_size(), 300);
}

TEST_F(TextCommands, ATextIsCutOnlyWhereNoTokenCanReachAcross) {
  // Words are not split, and one token is a line feed followed by a z.
  Value tree = read_json(fixtures + "/tokenizer.json"), model = tree.at("model"), words = model.at("vocab"),
        merges = model.at("merges"), split = tree.at("pre_tokenizer");
  std::int64_t size = 0;
  for (const auto& [token, id] : words.members()) size = std::max(size, id.as_int() + 1);
  for (const Value& token : tree.at("added_tokens").items()) size = std::max(size, token.at("id").as_int() + 1);
  words.set("\u010az", Value::of(size));
  merges.push_back(merges.items().front().is_string() ? Value::of("\u010a z")
                                                      : Value::make_array({Value::of("\u010a"), Value::of("z")}));
  model.set("vocab", words);
  model.set("merges", merges);
  tree.set("model", model);
  split.set("use_regex", Value::of(false));
  tree.set("pre_tokenizer", split);
  write_file_atomically(at("tokenizer.json"), dump_json(tree, 1));
  const auto tokenizer = load_tokenizer(at("tokenizer.json"));
  ASSERT_EQ(tokenizer->encode("\nz").size(), 1u);

  std::string text;
  while (text.size() < (std::size_t{9} << 17)) text += "q\nz";
  write_file_atomically(at("text.txt"), text);
  const auto result = run(
      {"tokenize", "--train_file", at("text.txt"), "--tokenizer_name", at("tokenizer.json"), "--output", at("data")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(format::IndexedDataset(at("data")).token_count(),
            static_cast<std::int64_t>(tokenizer->encode(text).size()));
}

TEST_F(TextCommands, TrainThenTokenize) {
  const std::string text_path = fixtures + "/train.txt";
  ASSERT_EQ(run({"tokenizer", "train", "--train-file", text_path, "--vocab_size=500", "--output", at("tok")}).exit_code,
            0);
  const auto tokenizer = load_tokenizer(at("tok"));
  EXPECT_EQ(tokenizer->vocab_size(), 500);

  std::string big;  // longer than the pieces that documents are split into, with runs of blanks at line feeds
  while (big.size() < (std::size_t{3} << 20)) big += read_file(text_path) + "\n\n    x\n\t y\n";
  write_file_atomically(at("big.txt"), big);
  const auto result = run({"tokenize", "--train_file", at("big.txt"), "--tokenizer-name", at("tok"), "--output",
                           at("data"), "--append-eod"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const format::IndexedDataset data(at("data"));
  std::vector<std::int32_t> expected = tokenizer->encode(big);
  expected.push_back(0);
  std::vector<std::int64_t> written(static_cast<std::size_t>(data.token_count()));
  data.read(0, written);
  EXPECT_TRUE(std::equal(written.begin(), written.end(), expected.begin(), expected.end()));
  EXPECT_EQ(data.document_count(), 1);
}

TEST_F(TextCommands, JsonLinesAreDocuments) {
  write_file_atomically(at("a.jsonl"), "{\"text\": \"one\"}\n\n{\"text\": \"tw\\u00f6\", \"other\": 1}\n");
  ASSERT_EQ(
      run({"tokenize", "--train_file", at("a.jsonl"), "--tokenizer_name", "byte", "--output", at("data")}).exit_code,
      0);
  const format::IndexedDataset data(at("data"));
  EXPECT_EQ(data.document_count(), 2);
  EXPECT_EQ(data.token_count(), 3 + 4);
}

TEST_F(TextCommands, AnotherColumnAndALineOfTenMegabytes) {
  const std::string big(10 << 20, 'x');
  write_file_atomically(at("a.jsonl"), "{\"body\": \"one\"}\n{\"body\": \"" + big + "\"}\n");
  const auto result = run({"tokenize", "--train_file", at("a.jsonl"), "--text_column_name", "body", "--tokenizer_name",
                           "byte", "--output", at("data")});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(format::IndexedDataset(at("data")).token_count(), static_cast<std::int64_t>(3 + big.size()));
}

TEST_F(TextCommands, EncodeShowsTokens) {
  const std::string tokenizer = fixtures + "/family_llama3.json";
  const auto shown = run({"tokenizer", "encode", "--tokenizer_name", tokenizer, "--text", "a\xC3\xA9<|im_end|>"});
  EXPECT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(shown.out.substr(shown.out.size() - 15), "2\t\"<|im_end|>\"\n");
  write_file_atomically(at("a.jsonl"), "{\"text\": \"<|im_end|>\"}\n{\"text\": \"\"}\n");
  const auto rows =
      run({"tokenizer", "encode", "--tokenizer_name", tokenizer, "--file", at("a.jsonl"), "--add_special_tokens"});
  EXPECT_EQ(rows.out, "[1,2,2]\n[1,2]\n");
  expect_refused({"tokenizer", "encode", "--tokenizer_name", tokenizer}, "--text");
}

TEST_F(TextCommands, BadInputWritesNothing) {
  const std::string text = fixtures + "/train.txt";
  write_file_atomically(at("empty.txt"), "");
  write_file_atomically(at("bad.jsonl"), "{\"text\": \"fine\"}\n{\"txt\": \"x\"}\n");
  expect_refused({"tokenizer", "train", "--train_file", text, "--vocab-sice", "500", "--output", at("out")},
                 "--vocab_size");
  expect_refused({"tokenizer", "train", "--train_file", text, "--vocab_size", "100", "--output", at("out")},
                 "too small");
  expect_refused({"tokenizer", "train", "--train_file", at("missing"), "--vocab_size", "500", "--output", at("out")},
                 "missing");
  expect_refused({"tokenizer", "train", "--train_file", at("empty.txt"), "--vocab_size", "500", "--output", at("out")},
                 "empty");
  expect_refused({"tokenizer", "trian"}, "train");
  expect_refused({"tokenize", "--train_file", text, "--tokenizer_name", at("missing"), "--output", at("out")},
                 "does not exist");
  expect_refused({"tokenize", "--train_file", text, "--output", at("out")}, "--tokenizer_name");
  expect_refused({"tokenize", "--train_file", at("empty.txt"), "--tokenizer_name", "byte", "--output", at("out")},
                 "empty");
  expect_refused({"tokenize", "--train_file", at("bad.jsonl"), "--tokenizer_name", "byte", "--output", at("out")},
                 "bad.jsonl:2");
  write_file_atomically(at("utf8.jsonl"), "{\"text\": \"a\"}\n{\"text\": \"\xFF\"}\n");
  expect_refused({"tokenize", "--train_file", at("utf8.jsonl"), "--tokenizer_name", "byte", "--output", at("out")},
                 "utf8.jsonl:2:11");
  expect_refused({"tokenizer", "train", "--train_file", at("utf8.jsonl"), "--vocab_size", "500", "--output", at("out")},
                 "utf8.jsonl:2:11");
  EXPECT_EQ(list_folder(at("")).size(), 3u);  // no temporary files: the inputs only
}

}  // namespace
}  // namespace tessera::text
