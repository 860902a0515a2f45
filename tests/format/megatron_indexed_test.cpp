// Megatron's .bin/.idx: written data reads back, and damaged files are refused.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/megatron_indexed.h>

#include <cstring>
#include <fstream>
#include <limits>

namespace tessera::format {
namespace {

class Indexed : public ::testing::Test {
 protected:
  std::string prefix() const { return path_join(folder_.path(), "data"); }

  void write_small(std::int64_t vocab_size = 1000) {
    IndexedWriter writer(prefix(), vocab_size);
    writer.add_sequence(std::vector<std::int32_t>{1, 2, 3});
    writer.add_sequence(std::vector<std::int32_t>{});
    writer.end_document();
    writer.add_sequence(std::vector<std::int32_t>{999, 0});
    writer.end_document();
    writer.finish();
  }

  /// Without the fsync of an atomic write, because there are many.
  void put(const char* suffix, const std::string& bytes) const {
    std::ofstream(prefix() + suffix, std::ios::binary) << bytes;
  }

  std::string index() const { return read_file(prefix() + ".idx"); }

  /// Expects that the index is refused with `value` at byte `at`.
  template <class T>
  void expect_refused_with(std::size_t at, T value) {
    std::string bytes = good_;
    std::memcpy(bytes.data() + at, &value, sizeof value);
    put(".idx", bytes);
    EXPECT_THROW(IndexedDataset{prefix()}, InputError) << "byte " << at;
  }

  TemporaryFolder folder_;
  std::string good_;
};

std::vector<std::int64_t> read_all(const IndexedDataset& data) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(data.token_count()));
  data.read(0, tokens);
  return tokens;
}

TEST_F(Indexed, RoundTrip) {
  for (const std::int64_t vocab : {1000, 100000}) {
    write_small(vocab);
    for (const char* suffix : {"", ".bin", ".idx"}) {
      const IndexedDataset data(prefix() + suffix);
      EXPECT_EQ(data.bytes_per_token(), vocab == 1000 ? 2 : 4);
      EXPECT_EQ(data.sequence_count(), 3);
      EXPECT_EQ(data.document_count(), 2);
      EXPECT_EQ(data.sequence_length(0), 3);
      EXPECT_EQ(data.sequence_length(1), 0);
      EXPECT_EQ(data.sequence_begin(2), 3);
      EXPECT_EQ(data.document_begin(1), 2);
      EXPECT_EQ(read_all(data), (std::vector<std::int64_t>{1, 2, 3, 999, 0}));
    }
  }
}

TEST_F(Indexed, ReadsAnyRangeAndNoOther) {
  write_small();
  const IndexedDataset data(prefix());
  const auto all = read_all(data);
  for (std::size_t begin = 0; begin <= all.size(); ++begin) {
    for (std::size_t end = begin; end <= all.size(); ++end) {
      std::vector<std::int64_t> part(end - begin);
      data.read(static_cast<std::int64_t>(begin), part);
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + static_cast<std::ptrdiff_t>(begin)));
    }
  }
  std::vector<std::int64_t> two(2);
  EXPECT_THROW(data.read(4, two), Error);
  EXPECT_THROW(data.read(-1, two), Error);
  EXPECT_THROW(data.read(std::numeric_limits<std::int64_t>::max(), two), Error);
}

TEST_F(Indexed, LayoutOfTheFormat) {
  write_small();
  const std::string bytes = index();
  ASSERT_EQ(bytes.size(), 9u + 8 + 1 + 8 + 8 + 3 * 4 + 3 * 8 + 3 * 8);
  EXPECT_EQ(bytes.substr(0, 9), std::string("MMIDIDX\0\0", 9));
  EXPECT_EQ(bytes[17], 8);  // uint16
  EXPECT_EQ(read_file(prefix() + ".bin"), std::string("\x01\0\x02\0\x03\0\xE7\x03\0\0", 10));
}

TEST_F(Indexed, DamagedIndexIsRefused) {
  write_small();
  good_ = index();
  constexpr std::size_t lengths = 34, offsets = lengths + 12, documents = offsets + 24;
  expect_refused_with<char>(0, 'X');
  expect_refused_with<std::uint64_t>(9, 2);  // version
  for (const std::uint8_t code : {0, 6, 7, 9, 255}) expect_refused_with<std::uint8_t>(17, code);
  expect_refused_with<std::uint64_t>(18, ~std::uint64_t{0});       // sequences
  expect_refused_with<std::uint64_t>(18, std::uint64_t{1} << 62);  // overflows when multiplied
  expect_refused_with<std::uint64_t>(26, std::uint64_t{1} << 61);  // documents
  expect_refused_with<std::int32_t>(lengths, -1);
  expect_refused_with<std::int32_t>(lengths, 1 << 30);
  expect_refused_with<std::int64_t>(offsets, -2);
  expect_refused_with<std::int64_t>(offsets, 8);
  expect_refused_with<std::int64_t>(offsets + 16, std::numeric_limits<std::int64_t>::max());
  expect_refused_with<std::int64_t>(documents + 8, 4);
  expect_refused_with<std::int64_t>(documents, 3);  // descending
}

TEST_F(Indexed, TruncatedFilesAreRefused) {
  write_small();
  good_ = index();
  for (std::size_t size = 0; size < good_.size(); ++size) {
    put(".idx", good_.substr(0, size));
    EXPECT_THROW(IndexedDataset{prefix()}, InputError) << size;
  }
  put(".idx", good_);
  put(".bin", read_file(prefix() + ".bin").substr(0, 9));
  EXPECT_THROW(IndexedDataset{prefix()}, InputError);
  EXPECT_THROW(IndexedDataset{prefix() + "-missing"}, InputError);
}

TEST_F(Indexed, AnUnfinishedWriterLeavesNothing) {
  {
    IndexedWriter writer(prefix(), 10);
    writer.add_sequence(std::vector<std::int32_t>(100, 3));
  }
  EXPECT_TRUE(list_folder(folder_.path()).empty());
}

TEST_F(Indexed, TokensOutsideTheVocabularyAreRefused) {
  IndexedWriter writer(prefix(), 10);
  EXPECT_THROW(writer.add_sequence(std::vector<std::int32_t>{10}), InputError);
  EXPECT_THROW(writer.add_sequence(std::vector<std::int32_t>{-1}), InputError);
}

}  // namespace
}  // namespace tessera::format
