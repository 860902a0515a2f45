#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/corpus/sources.h>
#include <tessera/data/blend.h>
#include <tessera/data/dataset.h>
#include <tessera/data/text_records.h>
#include <tessera/format/megatron_indexed.h>
#include <tests/own_folder.h>

#include "fake_tokenizer.h"

namespace tessera::data {
namespace {

std::vector<std::int64_t> block(const Dataset& dataset, std::int64_t i) { return dataset.read(i).ids; }

DataConfig from(const std::string& train_file, double validation_percentage = 5,
                const std::string& validation_file = "") {
  DataConfig config;
  config.train_file = train_file;
  config.validation_file = validation_file;
  config.validation_split_percentage = validation_percentage;
  return config;
}

class DatasetTest : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    const std::string path = path_join(folder_.path(), name);
    write_file_atomically(path, text);
    return path;
  }
  std::string write_indexed(const std::string& name, const std::vector<std::vector<std::int32_t>>& sequences) {
    const std::string prefix = path_join(folder_.path(), name);
    format::IndexedWriter writer(prefix, 1000);
    for (const auto& sequence : sequences) {
      writer.add_sequence(sequence);
      writer.end_document();
    }
    writer.finish();
    return prefix + ".bin";
  }
  Datasets open(const DataConfig& config, std::int64_t block_size = 4, std::int64_t vocab_size = 256,
                bool validation = true) {
    return open_datasets(config, tokenizer_, block_size, vocab_size, validation);
  }
  /// The ids of a file of text.
  std::vector<std::int64_t> encoded(const std::string& text, const text::Tokenizer& tokenizer, int threads = 1,
                                    const ReadProgress& progress = {}) {
    std::vector<std::string> notes;
    const auto request = lines_request({corpus::source_file(write("lines.txt", text))}, tokenizer, threads);
    const auto tokens = open_tokens(request, tokenizer, "none", progress, notes);
    std::vector<std::int64_t> ids;
    tokens.store->read(0, tokens.store->tokens(), ids);
    return ids;
  }
  void expect_complaint(const DataConfig& config, const std::string& part, std::int64_t block_size = 4,
                        std::int64_t vocab_size = 256) {
    try {
      open(config, block_size, vocab_size);
      ADD_FAILURE() << "accepted; expected an error with '" << part << "'";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what() << "\nlacks " << part;
    }
  }

  TemporaryFolder folder_;
  FakeTokenizer tokenizer_;
};

TEST_F(DatasetTest, TextIsEncodedLineByLine) {
  EXPECT_EQ(encoded("a\n b\n", tokenizer_), (std::vector<std::int64_t>{'a', 0, 0, 'b', 0}));
  EXPECT_EQ(encoded("a\n\n\nb", tokenizer_), (std::vector<std::int64_t>{'a', 0, 0, 0, 'b'}));
  struct : FakeTokenizer {
    std::vector<std::int32_t> prefix() const override { return {1, 2}; }
    std::vector<std::int32_t> suffix() const override { return {3}; }
  } wrapping;
  EXPECT_EQ(encoded("a\nb", wrapping), (std::vector<std::int64_t>{1, 2, 'a', 0, 3, 1, 2, 'b', 3}));
}

TEST_F(DatasetTest, BlocksAreCutInOrderAndTheRestIsDropped) {
  const auto train = write("t.txt", "abcdefghij");
  const Datasets datasets = open(from(train), 4, 256, false);
  EXPECT_EQ(datasets.validation, nullptr);
  ASSERT_EQ(datasets.train->size(), 2);
  EXPECT_EQ(block(*datasets.train, 0), (std::vector<std::int64_t>{'a', 'b', 'c', 'd'}));
  EXPECT_EQ(block(*datasets.train, 1), (std::vector<std::int64_t>{'e', 'f', 'g', 'h'}));
  EXPECT_DOUBLE_EQ(datasets.train_bytes_per_token, 1);
  EXPECT_THROW(block(*datasets.train, 2), Error);
  EXPECT_THROW(block(*datasets.train, -1), Error);
}

TEST_F(DatasetTest, ValidationIsTheEndOfTheStream) {
  std::string text;
  for (int i = 0; i < 40; ++i) text += std::string(4, static_cast<char>('A' + i));
  const auto train = write("t.txt", text);
  const Datasets datasets = open(from(train, 5));
  ASSERT_EQ(datasets.train->size(), 38);
  ASSERT_EQ(datasets.validation->size(), 2);
  EXPECT_EQ(block(*datasets.train, 37)[0], 'A' + 37);
  EXPECT_EQ(block(*datasets.validation, 0)[0], 'A' + 38);
  EXPECT_EQ(block(*datasets.validation, 1)[0], 'A' + 39);
  EXPECT_THROW(block(*datasets.train, 38), Error);
  EXPECT_EQ(open(from(train, 0.1)).validation->size(), 1) << "at least one";
  EXPECT_EQ(open(from(train, 99.9)).train->size(), 1) << "at least one";
  EXPECT_EQ(open(from(train, 0)).validation, nullptr);
  const auto other = write("v.txt", "vvvvvvvvv");
  const Datasets separate = open(from(train, 5, other));
  EXPECT_EQ(separate.train->size(), 40);
  EXPECT_EQ(separate.validation->size(), 2);
}

TEST_F(DatasetTest, IndexedFilesAreOneStream) {
  const auto path = write_indexed("m", {{1, 2, 3}, {4, 5}, {6, 7, 8, 9, 10, 11}});
  for (const std::string& name : {path, path.substr(0, path.size() - 4) + ".idx"}) {
    const Datasets datasets = open(from(name), 5, 1000, false);
    ASSERT_EQ(datasets.train->size(), 2);
    EXPECT_EQ(block(*datasets.train, 0), (std::vector<std::int64_t>{1, 2, 3, 4, 5}));
    EXPECT_EQ(block(*datasets.train, 1), (std::vector<std::int64_t>{6, 7, 8, 9, 10}));
    EXPECT_EQ(datasets.train_bytes_per_token, 0);
  }
}

TEST_F(DatasetTest, BadInputIsNamed) {
  expect_complaint(from(""), "--train_file is not set");
  expect_complaint(from(path_join(folder_.path(), "absent.txt")), "--train_file: no such file: ");
  expect_complaint(from(folder_.path()), folder_.path());  // holds nothing
  expect_complaint(from(write("t.odt", "x")), "t.odt");
  expect_complaint(from(write("e.txt", "")), "e.txt: is empty");
  const auto train = write("t.txt", "abcdefghij");
  expect_complaint(from(train), "t.txt: has 10 tokens, fewer than one block of 11", 11);
  expect_complaint(from(train), "token 2 has id 99, but the model's vocabulary has 99 entries", 4, 99);
  expect_complaint(from(train), "block_size is 1", 1);
  expect_complaint(from(train), "has 1 block: none can be held out", 6);
  expect_complaint(from(train, 100), "--validation_split_percentage is 100");
  expect_complaint(from(train, -1), "--validation_split_percentage is -1");
  expect_complaint(from(train, 5, "absent.txt"), "--validation_file: no such file: absent.txt");
  expect_complaint(from(write("lone.bin", "xx")), "lone");
  expect_complaint(from(write("x.jsonl", "{}\n")), "x.jsonl:1:1");
  expect_complaint(from(write("one.jsonl", "{\"text\": \"ab\"}\n")), "one.jsonl: has 1 example: none can be held out");
  const auto indexed = write_indexed("m", {{1, 2, 3}, {4, 5}, {6, 7, 8, 9, 10, 11}});
  expect_complaint(from(indexed), "token 6 has id 7, but the model's vocabulary has 7 entries", 4, 7);
  expect_complaint(from(indexed), "has 11 tokens, fewer than one block of 12", 12);
}

TEST_F(DatasetTest, ThreadsAndPiecesChangeNoToken) {
  std::string text = "begin ";
  while (text.size() < 3'000'000) text += concat("line ", text.size(), "  of words\n", text.size() % 3 ? "" : "\n \n");
  text += std::string(400'000, 'x') + "\nno line feed at the end";
  std::vector<std::int64_t> expected;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size() - 1) + 1;
    const auto ids = tokenizer_.encode(std::string_view(text).substr(at, end - at));
    expected.insert(expected.end(), ids.begin(), ids.end());
    at = end;
  }
  std::uint64_t seen = 0;
  const auto progress = [&](const std::string&, std::uint64_t done, std::uint64_t) { seen = done; };
  EXPECT_EQ(encoded(text, tokenizer_, 1, progress), expected);
  EXPECT_EQ(seen, text.size());
  EXPECT_EQ(encoded(text, tokenizer_, 3), expected);
  DataConfig config = from(write("kept.txt", text));
  config.data_cache_dir = path_join(folder_.path(), "cache");
  for (const char* said : {"tokens made and stored in ", "tokens found in "}) {
    const Datasets kept = open(config, 1000, 256, false);
    EXPECT_NE(kept.notes.at(0).find(said), std::string::npos) << kept.notes.at(0);
    const std::int64_t last = kept.train->size() - 1;
    EXPECT_EQ(block(*kept.train, last),
              std::vector<std::int64_t>(expected.begin() + 1000 * last, expected.begin() + 1000 * (last + 1)));
  }
}

TEST_F(DatasetTest, ExamplesAreHeldOutCutAndPackedAsConfigured) {
  std::string text;
  for (int i = 0; i < 40; ++i)
    text += concat("{\"text\": \"", std::string(static_cast<std::size_t>(2 + i % 4), static_cast<char>('0' + i)),
                   "\", \"id\": 1}\n");
  text += "{\"text\": \"a\"}\n";  // FakeTokenizer appends no end of text, so there is nothing to score
  DataConfig config = from(write("t.jsonl", text), 10);
  const Datasets padded = open(config, 4);
  ASSERT_EQ(padded.train->size(), 36);
  ASSERT_EQ(padded.validation->size(), 4);
  EXPECT_EQ(padded.train->max_length(), 4);
  EXPECT_EQ(block(*padded.train, 35), (std::vector<std::int64_t>(4, '0' + 35)));
  EXPECT_EQ(block(*padded.validation, 0), (std::vector<std::int64_t>(2, '0' + 36)));
  EXPECT_THROW(padded.train->read(36), Error);
  ASSERT_EQ(padded.warnings.size(), 3u);
  EXPECT_NE(padded.warnings[0].find("10 of 40 examples are longer than 4 tokens and were cut"), std::string::npos);
  EXPECT_NE(padded.warnings[1].find("1 example was left out: no scored token within the first 4"), std::string::npos);
  EXPECT_NE(padded.warnings[2].find("unused fields: id"), std::string::npos);
  ASSERT_EQ(padded.notes.size(), 1u);
  EXPECT_NE(padded.notes[0].find("40 examples (text), 130 tokens, 69.2% of them scored"), std::string::npos)
      << padded.notes[0];

  config.max_seq_length = 5;
  EXPECT_EQ(open(config, 4).train->max_length(), 5) << "--max_seq_length counts, not the block size";
  config.packing = true;
  const Datasets packed = open(config, 4);
  EXPECT_EQ(packed.train->max_length(), 5);
  EXPECT_LT(packed.train->size(), 36);
  std::int64_t train = 0, validation = 0;
  for (std::int64_t i = 0; i < packed.train->size(); ++i) train += packed.train->length(i);
  for (std::int64_t i = 0; i < packed.validation->size(); ++i) validation += packed.validation->length(i);
  EXPECT_EQ(train, 9 * (2 + 3 + 4 + 5));
  EXPECT_EQ(validation, 2 + 3 + 4 + 5) << "no row mixes the two";
  ASSERT_EQ(packed.notes.size(), 3u);
  EXPECT_EQ(packed.notes[2], "packing: 36 examples in 27 rows of 5 tokens, 93.3% full");
}

TEST_F(DatasetTest, FilesOfOneListAreOneStream) {
  const std::string list = write("a.txt", "abcde") + " " + write("b.txt", "fghij") + " " + write("c.txt", "klm");
  DataConfig config = from(list);
  const Datasets datasets = open(config, 4, 256, false);
  ASSERT_EQ(datasets.train->size(), 3);
  EXPECT_EQ(block(*datasets.train, 1), (std::vector<std::int64_t>{'e', 'f', 'g', 'h'}));
  EXPECT_EQ(datasets.train->read(1).document_starts, std::vector<std::int64_t>{0});
  config.reset_position_ids = true;
  const Row row = open(config, 4, 256, false).train->read(1);
  EXPECT_EQ(row.document_starts, (std::vector<std::int64_t>{0, 1}));
  EXPECT_EQ(row.labels, (std::vector<std::int64_t>{'e', not_scored, 'g', 'h'}));
  EXPECT_EQ(open(config, 4, 256, false).train->read(0).document_starts, std::vector<std::int64_t>{0});
}

TEST_F(DatasetTest, TheFirstRowsAreTakenWhenAsked) {
  DataConfig config = from(write("a.txt", "abcdefghijkl"));
  config.validation_file = write("v.txt", "ABCDEFGH");
  config.max_train_samples = 2;
  config.max_eval_samples = 1;
  const Datasets datasets = open(config, 4, 256, true);
  ASSERT_EQ(datasets.train->size(), 2);
  ASSERT_EQ(datasets.validation->size(), 1);
  EXPECT_EQ(block(*datasets.train, 1), (std::vector<std::int64_t>{'e', 'f', 'g', 'h'}));
  config.max_train_samples = 5;
  EXPECT_EQ(open(config, 4, 256, true).train->size(), 3) << "no more rows";
}

TEST_F(DatasetTest, DocumentsOfTokenFilesAreKnown) {
  DataConfig config = from(write_indexed("m", {{1, 2, 3}, {4, 5}, {6, 7, 8, 9, 10, 11}}));
  config.reset_position_ids = true;
  const auto train = open(config, 5, 1000, false).train;
  EXPECT_EQ(train->read(0).document_starts, (std::vector<std::int64_t>{0, 3}));
  EXPECT_EQ(train->read(0).labels, (std::vector<std::int64_t>{1, 2, 3, not_scored, 5}));
  EXPECT_EQ(train->read(1).document_starts, std::vector<std::int64_t>{0});
}

TEST_F(DatasetTest, ABlendKeepsItsWeights) {
  const std::string list =
      concat("3 ", write("a.txt", std::string(40, 'a')), " 1 ", write("b.txt", std::string(24, 'b')));
  DataConfig config = from(list);
  const auto train = open(config, 4, 256, false).train;
  EXPECT_EQ(train->size(), 23) << "until the 6 blocks of b have been seen: the 6th is sample 22";
  config.blend_mode = BlendMode::first_exhausted;
  EXPECT_EQ(open(config, 4, 256, false).train->size(), 13) << "the 11th block of a would be its first again";
  const Sampler sampler(SamplingStrategy::random, *train, 7, 4);
  std::map<std::int64_t, int> seen;
  int of_a = 0;
  for (std::int64_t i = 0; i < 10'000; ++i) {
    const std::int64_t row = sampler(i);
    of_a += block(*train, row)[0] == 'a';
    if (i < 23) ++seen[row];
  }
  EXPECT_NEAR(of_a, 7500, 10);
  for (std::int64_t row = 10; row < 16; ++row) EXPECT_EQ(seen[row], 1) << "each block of b once an epoch";
  EXPECT_THROW(Sampler(SamplingStrategy::group_by_length, *train, 7, 4), InputError);
  const Sampler again(SamplingStrategy::random, *open(from(list), 4, 256, false).train, 7, 4);
  for (const std::int64_t i : {9'999, 3, 70'000, 12}) EXPECT_EQ(again(i), sampler(i)) << "in any order";
  const Datasets held = open(from(list, 10), 4);
  EXPECT_EQ(held.validation->size(), 1);
  EXPECT_EQ(held.train->blend()->rows(), 15);
}

TEST_F(DatasetTest, BatchesAreRowsOfTheSampleOrder) {
  std::vector<std::int32_t> tokens(30);
  std::iota(tokens.begin(), tokens.end(), 0);
  const auto blocks = token_blocks(tokens, 3, 30, "memory");
  const Sampler sampler(SamplingStrategy::random, blocks->size(), 9);
  const Batch batch = make_batch(*blocks, sampler, 8, 4);  // crosses into the second epoch
  ASSERT_EQ(batch.ids.sizes(), (std::vector<std::int64_t>{4, 3}));
  EXPECT_EQ(batch.ids.scalar_type(), at::kLong);
  EXPECT_TRUE(at::equal(batch.ids, batch.labels));
  EXPECT_NE(batch.ids.const_data_ptr(), batch.labels.const_data_ptr());
  EXPECT_EQ(batch.scored_tokens, 8);
  for (std::int64_t row = 0; row < 4; ++row) {
    for (std::int64_t t = 0; t < 3; ++t) EXPECT_EQ(batch.ids[row][t].item<std::int64_t>(), 3 * sampler(8 + row) + t);
  }
  // The rows of two ranks are the rows of one rank, divided in two.
  const Batch left = make_batch(*blocks, sampler, 8, 2), right = make_batch(*blocks, sampler, 10, 2);
  EXPECT_TRUE(at::equal(at::cat({left.ids, right.ids}), batch.ids));
}

}  // namespace
}  // namespace tessera::data
