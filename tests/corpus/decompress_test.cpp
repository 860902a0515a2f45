#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <tessera/corpus/bytes/byte_stream.h>
#include <tests/corpus/made_files.h>
#include <tests/error_of.h>
#include <tests/paths.h>

namespace tessera::corpus {
namespace {

using testing::error_of;

std::string fixture(const std::string& name) { return testing::source_path("tests/fixtures/corpus/" + name); }

/// Throws the stream's error; `so_far` receives the bytes read before it.
void read_all(const std::string& path, std::size_t at_once, std::string& so_far) {
  const auto stream = open_bytes(source_file(path));
  std::vector<char> buffer(at_once);
  while (const std::size_t got = stream->read(buffer)) so_far.append(buffer.data(), got);
  EXPECT_EQ(stream->used(), source_file(path).bytes);
}

class Compressed : public ::testing::TestWithParam<const char*> {
 protected:
  const std::string extension = GetParam();
  const std::string bytes = read_file(fixture("lines.jsonl" + extension));
  const std::string whole = read_file(fixture("lines.jsonl"));
  const MadeFiles made;
};

INSTANTIATE_TEST_SUITE_P(All, Compressed, ::testing::Values(".gz", ".zst", ".xz"),
                         [](const auto& row) { return std::string(row.param + 1); });

TEST_P(Compressed, SeveralPartsInWhateverSteps) {
  for (const std::size_t at_once : {std::size_t{1}, std::size_t{7}, std::size_t{1} << 16}) {
    std::string text;
    read_all(fixture("lines.jsonl" + extension), at_once, text);
    EXPECT_EQ(text, whole);
  }
  EXPECT_EQ(records_of(fixture("lines.jsonl" + extension)), records_of(fixture("lines.jsonl")));
}

TEST_P(Compressed, EveryTruncationIsNoticed) {
  for (std::size_t size = 1; size < bytes.size(); ++size) {
    const std::string path = made.add("cut.jsonl" + extension, bytes.substr(0, size));
    std::string text;
    const std::string complaint = error_of([&] { read_all(path, 1 << 16, text); });
    EXPECT_TRUE(whole.starts_with(text));
    // a file that ends exactly at a boundary of members, frames or streams is valid
    if (complaint.empty()) {
      EXPECT_EQ(text.size(), 700u) << size;
      continue;
    }
    EXPECT_TRUE(complaint.starts_with(path + ": the ")) << complaint;
    EXPECT_NE(complaint.find("data are damaged near byte " + std::to_string(size)), std::string::npos) << complaint;
  }
}

TEST_P(Compressed, FlippedBitsAreNoticedOrHarmless) {
  std::mt19937 random(1);
  for (int i = 0; i < mutations(); ++i) {
    std::string mutated = bytes;
    mutated[random() % mutated.size()] ^= static_cast<char>(1 << random() % 8);
    const std::string path = made.add("flipped.jsonl" + extension, mutated);
    std::string text;
    const std::string complaint = error_of([&] { read_all(path, 1 << 16, text); });
    if (complaint.empty()) {
      EXPECT_EQ(text, whole);  // checksums do not cover names, times etc.
    } else {
      EXPECT_TRUE(complaint.starts_with(path + ": the ")) << complaint;
    }
  }
}

TEST_P(Compressed, WhatIsNoneOfIt) {
  const std::string path = made.add("text.jsonl" + extension, "{\"a\": 1}\n");
  std::string text;
  EXPECT_TRUE(error_of([&] { read_all(path, 1 << 16, text); }).starts_with(path + ": the ")) << extension;
  std::string behind;
  const std::string more = made.add("more.jsonl" + extension, bytes + "garbage");
  EXPECT_NE(error_of([&] { read_all(more, 1 << 16, behind); }), "") << "garbage after the end";
}

TEST_P(Compressed, IsOnePiece) {
  const SourceFile file = source_file(fixture("lines.jsonl" + extension));
  const auto pieces = pieces_of(file, 1);
  ASSERT_EQ(pieces.size(), 1u);
  EXPECT_EQ(pieces[0].bytes, file.bytes);
}

TEST(Gzip, ZerosBehindTheEndFillATape) {
  const MadeFiles made;
  const std::string bytes = read_file(fixture("lines.jsonl.gz"));
  EXPECT_EQ(records_of(made.add("a.jsonl.gz", bytes + std::string(100, '\0'))).size(), 40u);
}

TEST(Decompress, AnErrorStays) {
  const MadeFiles made;
  const auto stream = open_bytes(source_file(made.add("a.txt.gz", "\x1f\x8b")));
  char buffer[16];
  const std::string first = error_of([&] { stream->read(buffer); });
  EXPECT_NE(first, "");
  EXPECT_EQ(error_of([&] { stream->read(buffer); }), first);
}

}  // namespace
}  // namespace tessera::corpus
