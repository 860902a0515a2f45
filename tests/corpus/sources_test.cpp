#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <tessera/corpus/find.h>
#include <tests/corpus/made_files.h>
#include <tests/error_of.h>

namespace tessera::corpus {
namespace {

using testing::error_of;
using Names = std::vector<std::string>;

class Sources : public ::testing::Test {
 protected:
  /// Paths below the folder.
  Names found(const std::string& what, Split split = Split::train) const {
    Names names;
    for (const SourceFile& file : find_sources(what, split)) names.push_back(file.path.substr(made.path().size() + 1));
    return names;
  }
  std::string complaint(const std::string& what, Split split = Split::train) const {
    std::string text = error_of([&] { find_sources(what, split); });
    for (std::size_t at; (at = text.find(made.path())) != std::string::npos;) text.replace(at, made.path().size(), "D");
    return text;
  }
  MadeFiles made;
};

TEST_F(Sources, OneFileHasTheKindOfItsExtension) {
  const SourceFile file = source_file(made.add("a.JSONL.gz", "12345"));
  EXPECT_EQ(file.kind, FileKind::jsonl);
  EXPECT_EQ(file.compression, Compression::gzip);
  EXPECT_EQ(file.bytes, 5u);
  EXPECT_EQ(source_file(made.add("b.tsv.xz")).kind, FileKind::tsv);
  EXPECT_EQ(source_file(made.add("c.txt.zst")).compression, Compression::zstd);
  EXPECT_EQ(source_file(made.add("d.parquet")).kind, FileKind::parquet);
}

TEST_F(Sources, TokensAreAPair) {
  made.add("t.bin", "1234");
  EXPECT_EQ(complaint(made.path("t.bin")),
            "D/t.bin: D/t.idx does not exist: tokens need a pair of files, .bin and .idx");
  made.add("t.idx");
  EXPECT_EQ(found(made.path("t.idx")), (Names{"t.bin"}));
  EXPECT_EQ(found(made.path("t.*")), (Names{"t.bin"})) << "one source, not two";
  EXPECT_EQ(source_file(made.path("t.idx")).bytes, 4u);
}

TEST_F(Sources, Globs) {
  for (const char* name : {"a/1.txt", "a/2.txt", "a/.3.txt", "a/b/c/4.txt", "a/5.csv"}) made.add(name);
  EXPECT_EQ(found(made.path("a/*.txt")), (Names{"a/1.txt", "a/2.txt"}));
  EXPECT_EQ(found(made.path("a/[2-9].txt")), (Names{"a/2.txt"}));
  EXPECT_EQ(found(made.path("**/*.txt")), (Names{"a/1.txt", "a/2.txt", "a/b/c/4.txt"}));
  EXPECT_EQ(found(made.path("a/**/?.txt")), (Names{"a/1.txt", "a/2.txt", "a/b/c/4.txt"}));
  EXPECT_EQ(found(made.path("?/5.csv")), (Names{"a/5.csv"}));
  EXPECT_EQ(complaint(made.path("a/*.jsonl")), "no file matches 'D/a/*.jsonl'");
  EXPECT_EQ(
      complaint(made.path("a/*")),
      "D/a/*: contains files of several kinds: 2 of text (D/a/1.txt), 1 of CSV (D/a/5.csv); select one with a glob, "
      "such as '*.txt'");
  made.add("x[1].txt");
  EXPECT_EQ(found(made.path("x[1].txt")), (Names{"x[1].txt"})) << "a file with exactly this name";
}

TEST_F(Sources, FoldersAsOnTheHub) {
  for (const char* name : {"README.md", "dataset_infos.json", "LICENSE.txt", ".gitattributes", ".cache/x.jsonl",
                           "data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet",
                           "data/validation-00000-of-00001.parquet", "data/test-00000-of-00001.parquet"})
    made.add(name);
  EXPECT_EQ(found(made.path()), (Names{"data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"}));
  EXPECT_EQ(found(made.path(), Split::validation), (Names{"data/validation-00000-of-00001.parquet"}));
  EXPECT_TRUE(has_split(made.path(), Split::test));
}

TEST_F(Sources, SplitsAreWordsOfNames) {
  EXPECT_EQ(split_of("data/train-00000-of-00005.parquet"), Split::train);
  EXPECT_EQ(split_of("dev/a.jsonl"), Split::validation);
  EXPECT_EQ(split_of("my_eval_2.jsonl"), Split::test);
  EXPECT_EQ(split_of("train/test.jsonl"), Split::test) << "the file's own name decides";
  EXPECT_EQ(split_of("constrain.jsonl"), std::nullopt);
  EXPECT_EQ(split_of("devices.jsonl"), std::nullopt);
}

TEST_F(Sources, AFolderWithoutSplitsIsTrain) {
  for (const char* name : {"2.jsonl", "1.jsonl.gz", "sub/3.jsonl"}) made.add(name);
  EXPECT_EQ(found(made.path()), (Names{"1.jsonl.gz", "2.jsonl", "sub/3.jsonl"}));
  EXPECT_FALSE(has_split(made.path(), Split::validation));
  EXPECT_EQ(complaint(made.path(), Split::test),
            "D: has no files of the split test; it has /1.jsonl.gz, /2.jsonl, /sub/3.jsonl");
}

TEST_F(Sources, SavedByDatasets) {
  made.add("state.json", R"({"_data_files": [{"filename": "data-1.arrow"}, {"filename": "data-0.arrow"}]})");
  made.add("dataset_info.json", "{}");
  made.add("data-0.arrow");
  EXPECT_EQ(complaint(made.path()),
            "D/state.json:1:18: names data-1.arrow, which does not exist: the folder is incomplete");
  made.add("data-1.arrow");
  made.add("cache-0123.arrow");
  EXPECT_EQ(found(made.path()), (Names{"data-1.arrow", "data-0.arrow"})) << "in the order of state.json";
  made.add("state.json", R"({"_data_files": [{"filename": "../x.arrow"}]})");
  EXPECT_EQ(complaint(made.path()),
            "D/state.json:1:31: expected the name of a file in this folder, found \"../x.arrow\"");
}

TEST_F(Sources, TheCacheOfDatasets) {
  for (const char* name : {"dataset_info.json", "json-train-00000-of-00002.arrow", "json-train-00001-of-00002.arrow",
                           "json-test.arrow", "cache-8c1b.arrow"})
    made.add(name);
  EXPECT_EQ(found(made.path()), (Names{"json-train-00000-of-00002.arrow", "json-train-00001-of-00002.arrow"}));
}

TEST_F(Sources, SavedSplitsByDatasets) {
  made.add("dataset_dict.json", R"({"splits": ["train", "validation"]})");
  for (const char* split : {"train", "validation"}) {
    made.add(std::string(split) + "/state.json", R"({"_data_files": [{"filename": "data.arrow"}]})");
    made.add(std::string(split) + "/data.arrow");
  }
  EXPECT_EQ(found(made.path()), (Names{"train/data.arrow"}));
  EXPECT_EQ(found(made.path(), Split::validation), (Names{"validation/data.arrow"}));
}

TEST_F(Sources, ComplaintsSayWhatIsThere) {
  made.add("corpus.jsonl");
  EXPECT_EQ(complaint(made.path("corpsu.jsonl")), "no such file 'D/corpsu.jsonl'; did you mean 'D/corpus.jsonl'?");
  EXPECT_EQ(complaint(made.path("no/x.jsonl")), "no such file 'D/no/x.jsonl': no such folder 'D/no'");
  EXPECT_EQ(complaint(made.add("a.docx")),
            "D/a.docx: unknown kind of file; expected .txt, .jsonl, .json, .csv, .tsv (each also .gz, .zst, .xz), "
            ".parquet, .arrow, or .bin with an .idx next to it");
  EXPECT_NE(complaint(made.add("a.parquet.gz")).find("decompress the file first"), std::string::npos);
  MadeFiles other;
  other.add("x.docx");
  EXPECT_NE(complaint(other.path()).find("contains no file that can be read; expected .txt"), std::string::npos);
  EXPECT_NE(complaint(other.path()).find("it has x.docx"), std::string::npos);
  other.add("b.csv");
  other.add("c.txt");
  EXPECT_NE(complaint(other.path()).find("contains files of several kinds: 1 of text ("), std::string::npos);
  EXPECT_NE(complaint(other.path()).find("/**/*.csv'"), std::string::npos);
}

}  // namespace
}  // namespace tessera::corpus
