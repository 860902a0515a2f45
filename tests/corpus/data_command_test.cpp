// tessera data, and the text commands on files of every kind, as a user runs them.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include <tessera/corpus/tables/table_plugin.h>
#include <tessera/format/megatron_indexed.h>
#include <tessera/launch/agent/process.h>
#include <tests/corpus/made_files.h>
#include <tests/paths.h>
#include <tests/stopwatch.h>

namespace tessera::corpus {
namespace {

class DataCommand : public ::testing::Test {
 protected:
  static launch::Captured run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), testing::build_path("tessera"));
    return launch::run_and_capture(arguments, {}, tessera::testing::patience(120));
  }
  std::string good(const std::vector<std::string>& arguments) const {
    const launch::Captured result = run(arguments);
    EXPECT_EQ(result.exit_code, 0) << result.err;
    return result.out + result.err;
  }
  std::string refused(const std::vector<std::string>& arguments) const {
    const launch::Captured result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << result.out << result.err;
    return result.out + result.err;
  }
  std::string numbered(const std::string& name, int begin, int end) const {
    std::string text;
    for (int i = begin; i < end; ++i) text += "{\"text\": \"" + std::to_string(i) + "\"}\n";
    return made.add(name, text);
  }
  MadeFiles made;
};

void expect_has(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "no \"" << part << "\" in\n" << text;
}

TEST_F(DataCommand, Stats) {
  made.add("a.jsonl",
           "{\"text\": \"12345\", \"id\": 1}\n{\"text\": \"\", \"id\": null}\n{oops\n{\"text\": \"123456789\"}\n");
  const std::string said = good({"data", "stats", made.path(), "--tokenizer_name", "byte"});
  expect_has(said, "files      1 (1 of JSON Lines), ");
  expect_has(said, "records    3\n");
  expect_has(said, "columns    text: string\n           id: integer in 1, null in 1, missing in 1\n");
  expect_has(said, "training   reads text; not used: id\n");
  expect_has(said,
             "bytes      14 in all; of text in a record: 4.667 on average, at most 9; about 5 for half of them, 9 for");
  expect_has(said, "the longest: " + made.path("a.jsonl") + ":4:1\n");
  expect_has(said, "tokens     14 in all");
  expect_has(said,
             "bad        1 record cannot be read (tessera data check); first: " + made.path("a.jsonl") + ":3:2: ");
}

TEST_F(DataCommand, CheckListsEveryPlace) {
  const std::string path = made.add("a.jsonl", "{\"text\": \"a\"}\n{oops\n[]\n{\"test\": \"b\"}\n{\"text\": \"c\"}\n");
  const launch::Captured result = run({"data", "check", path});
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_EQ(std::count(result.out.begin(), result.out.end(), '\n'), 3) << result.out;
  for (const char* place : {":2:2: ", ":3:1: ", ":4:1: "}) expect_has(result.out, path + place);
  expect_has(result.err, "check: 2 records of 1 file are valid, 3 problems\n");
  expect_has(good({"data", "check", numbered("b.jsonl", 0, 3)}), "3 records of 1 file are valid\n");
  expect_has(refused({"data", "check", made.add("c.json", "[{\"text\": \"x\"}")}), "c.json:1:15: expected ','");
}

TEST_F(DataCommand, ShuffleKeepsLinesAsTheyAre) {
  const std::string lines = "{\"n\": 1.50,  \"text\":\"\\u00e9\"}\n{\"n\": 12345678901234567890}\n\n{}";
  const std::string path = made.add("a.jsonl", lines);
  good({"data", "shuffle", path, "--output", made.path("b.jsonl.gz"), "--seed", "5"});
  good({"data", "shuffle", path, "--output", made.path("c.jsonl"), "--seed", "5", "--memory_mb", "1"});
  good({"data", "merge", made.path("b.jsonl.gz"), "--output", made.path("d.jsonl")});
  EXPECT_EQ(read_file(made.path("d.jsonl")), read_file(made.path("c.jsonl")));
  std::string text = read_file(made.path("c.jsonl"));
  EXPECT_EQ(text.size(), lines.size());  // one blank line less, one final line feed more
  for (const char* line : {"{\"n\": 1.50,  \"text\":\"\\u00e9\"}\n", "{\"n\": 12345678901234567890}\n", "{}\n"})
    expect_has(text, line);
}

TEST_F(DataCommand, SplitDrawsExactlySoMany) {
  numbered("a.jsonl", 0, 1000);
  good({"data", "split", made.path("a.jsonl"), "--validation", "5%", "--test", "7", "--output", made.path("out")});
  const auto train = records_of(made.path("out/train.jsonl")), held = records_of(made.path("out/validation.jsonl")),
             tested = records_of(made.path("out/test.jsonl"));
  EXPECT_EQ(train.size(), 943u);
  EXPECT_EQ(held.size(), 50u);
  EXPECT_EQ(tested.size(), 7u);
  std::vector<std::string> all = train;
  for (const auto* part : {&held, &tested}) all.insert(all.end(), part->begin(), part->end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()) - all.begin(), 1000);
  EXPECT_EQ(find_sources(made.path("out"), Split::validation).at(0).path, made.path("out/validation.jsonl"));
  expect_has(refused({"data", "split", made.path("a.jsonl"), "--validation", "1001", "--output", made.path("no")}),
             "there are only 1000 records");
  EXPECT_FALSE(path_exists(made.path("no")));
}

TEST_F(DataCommand, NullsAreCounted) {
  const std::string path = made.add("a.jsonl", "{\"text\": \"a\"}\n{\"text\": null}\n");
  expect_has(good({"data", "check", path}), "1 records of 1 file are valid, 1 is empty and left out by training\n");
  expect_has(good({"data", "stats", path}), "training   reads text; skips 1 because empty\n");
  expect_has(good({"tokenize", "--train_file", path, "--tokenizer_name", "byte", "--output", made.path("t")}),
             "a.jsonl:2:1: skipped");
  expect_has(refused({"data", "merge", path, "--output", made.path("b.txt")}), "a.jsonl:2:1: \"text\" is null");
}

TEST_F(DataCommand, MergeTakesSeveralKinds) {
  made.add("a.csv", "text,n\n\"x\ny\",1\n");
  made.add("b.txt", "one\ntwo");
  made.add("c.json", "[{\"text\": \"z\"}]");
  std::vector<std::string> paths = {"data", "merge", made.path("a.csv"), made.path("b.txt"), made.path("c.json")};
  const auto with = [&](const std::string& output) {
    std::vector<std::string> all = paths;
    all.insert(all.end(), {"--output", made.path(output)});
    return all;
  };
  good(with("m.jsonl.xz"));
  EXPECT_EQ(records_of(made.path("m.jsonl.xz")),
            (std::vector<std::string>{R"({"text":"x\ny","n":"1"})", R"({"text":"one\n"})", R"({"text":"two"})",
                                      R"({"text":"z"})"}));
  good(with("m.txt"));
  EXPECT_EQ(read_file(made.path("m.txt")), "x\ny\none\ntwo\nz\n");
  expect_has(refused(with("m.csv")), "only .jsonl and .txt can be written");
  expect_has(refused(with("b.txt")), "is one of the input files");
}

TEST_F(DataCommand, Misuse) {
  expect_has(refused({"data", "stats"}), "needs a PATH");
  expect_has(refused({"data", "stat", "x"}), "did you mean 'stats'?");
  expect_has(refused({"data", "stats", made.path("x.jsonl")}), "no such file");
  expect_has(refused({"data", "shuffle", numbered("a.jsonl", 0, 1)}), "--output");
  expect_has(refused({"data", "stats", made.path(), "--split", "dev"}), "expected train, validation or test");
  for (const char* command : {"stats", "check", "shuffle", "split", "merge"})
    expect_has(good({"data", command, "--help"}), "--column_map");
}

TEST_F(DataCommand, TokenizeReadsEveryKind) {
  if (!has_table_plugin()) GTEST_SKIP() << "libtessera_arrow.so was not built: make deps";
  const std::string fixtures = testing::source_path("tests/fixtures/corpus/");
  good({"tokenize", "--train_file", fixtures + "lines.jsonl", "--tokenizer_name", "byte", "--output", made.path("a")});
  for (const char* name : {"lines.jsonl.gz", "lines.jsonl.zst", "lines.jsonl.xz"}) {
    good({"tokenize", "--train_file", fixtures + name, "--tokenizer_name", "byte", "--output", made.path("b"),
          "--overwrite"});
    EXPECT_EQ(read_file(made.path("a.bin")), read_file(made.path("b.bin"))) << name;
    EXPECT_EQ(read_file(made.path("a.idx")), read_file(made.path("b.idx"))) << name;
  }
  const std::string nulls = good({"tokenize", "--train_file", fixtures + "chat.arrow", "--dataset_text_field", "string",
                                  "--tokenizer_name", "byte", "--output", made.path("c")});
  expect_has(nulls, "chat.arrow: batch 1, row 0: skipped, like later records of this kind: \"string\" is null");
  expect_has(nulls, "2 records were skipped");
  good({"tokenize", "--train_file", made.add("d.csv", "body,n\nxyz,1\n"), "--dataset_text_field", "body",
        "--tokenizer_name", "byte", "--output", made.path("d")});
  EXPECT_EQ(format::IndexedDataset(made.path("d")).token_count(), 3);
}

}  // namespace
}  // namespace tessera::corpus
