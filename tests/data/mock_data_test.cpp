#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/config/sections/data_config.h>
#include <tessera/data/mock_data.h>

#include "fake_tokenizer.h"

namespace tessera::data {
namespace {

constexpr std::int64_t vocabulary = 50, end = 49;

/// Documents of the first `blocks` blocks, split at their ends.
std::vector<std::vector<std::int64_t>> documents_of(const Dataset& dataset, std::int64_t blocks) {
  std::vector<std::vector<std::int64_t>> documents(1);
  for (std::int64_t block = 0; block < blocks; ++block)
    for (const std::int64_t id : dataset.read(block).ids) {
      documents.back().push_back(id);
      if (id == end) documents.emplace_back();
    }
  documents.pop_back();  // it continues beyond the blocks
  return documents;
}

TEST(MockData, DocumentsCountAndEnd) {
  const auto rows = made_up_blocks(64, vocabulary, false);
  EXPECT_EQ(rows->read(0).labels, rows->read(0).ids);
  const auto documents = documents_of(*rows, 2000);
  ASSERT_GT(documents.size(), 30u);
  std::size_t longest = 0;
  for (const auto& document : documents) {
    for (std::size_t i = 0; i + 1 < document.size(); ++i)
      ASSERT_EQ(document[i], static_cast<std::int64_t>(i + 1) % end) << i;
    longest = std::max(longest, document.size());
  }
  EXPECT_GT(longest, 3000u);
  EXPECT_LE(longest, 4095u);
}

// Each row is generated independently, so neither the order of reading nor the length of rows may matter.
TEST(MockData, RowsAreCutFromOneStream) {
  const auto short_rows = made_up_blocks(16, vocabulary, false), long_rows = made_up_blocks(64, vocabulary, false);
  const std::int64_t last = long_rows->size() - 1;
  for (const std::int64_t row : {last, std::int64_t{7}, last / 2}) {
    std::vector<std::int64_t> joined;
    for (std::int64_t part = 0; part < 4; ++part) {
      const Row read = short_rows->read(4 * row + part);
      joined.insert(joined.end(), read.ids.begin(), read.ids.end());
    }
    EXPECT_EQ(long_rows->read(row).ids, joined) << row;
  }
  EXPECT_NEAR(static_cast<double>(long_rows->tokens()), 1e5 * 2048, 1e6);
}

TEST(MockData, DocumentsMayBeApart) {
  const auto apart = made_up_blocks(4096, vocabulary, true), together = made_up_blocks(4096, vocabulary, false);
  const Row row = apart->read(5);
  EXPECT_EQ(row.ids, together->read(5).ids);
  EXPECT_EQ(together->read(5).document_starts, std::vector<std::int64_t>{0});
  ASSERT_GT(row.document_starts.size(), 1u);
  for (std::size_t i = 1; i < row.document_starts.size(); ++i) {
    const auto start = static_cast<std::size_t>(row.document_starts[i]);
    EXPECT_EQ(row.ids[start - 1], end);
    EXPECT_EQ(row.labels[start], not_scored);
  }
}

TEST(MockData, TakesThePlaceOfFiles) {
  DataConfig config;
  config.mock_data = true;
  config.validation_split_percentage = 10;
  const FakeTokenizer tokenizer;
  const Datasets datasets = open_datasets(config, tokenizer, 64, vocabulary, true);
  const auto all = made_up_blocks(64, vocabulary, false);
  EXPECT_EQ(datasets.train->size() + datasets.validation->size(), all->size());
  EXPECT_EQ(datasets.validation->size(), all->size() / 10);
  EXPECT_EQ(datasets.validation->read(0).ids, all->read(datasets.train->size()).ids);
  EXPECT_EQ(datasets.train_bytes_per_token, 0);
}

TEST(MockData, NeedsAnIdToCountWith) {
  EXPECT_THROW((void)made_up_blocks(64, 1, false), InputError);
  EXPECT_THROW((void)made_up_blocks(1, 50, false), InputError);
}

}  // namespace
}  // namespace tessera::data
