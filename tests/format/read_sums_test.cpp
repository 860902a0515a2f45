// The combined records of several readers verify a folder as reliably as reading it again.

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/format/manifest/read_sums.h>
#include <tessera/format/manifest/verify.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

namespace tessera::format {
namespace {

constexpr std::uint64_t chunk_bytes = 65536;

using Bytes = std::vector<std::byte>;
using State = ChunkSums::State;

Bytes noise(std::size_t size, unsigned seed) {
  Bytes bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>((seed = seed * 1664525u + 1013904223u) >> 24);
  return bytes;
}

/// Two files and their manifest, in memory.
struct Folder {
  std::vector<Bytes> files = {noise(3 * chunk_bytes + 777, 1), noise(chunk_bytes / 2, 2)};
  Manifest manifest;

  Folder() {
    for (std::size_t i = 0; i < files.size(); ++i)
      manifest.files.push_back({concat("file", i), digest_of(files[i], chunk_bytes)});
  }
};

void note(ReadSums& sums, const Folder& folder, std::size_t file, std::uint64_t begin, std::uint64_t end) {
  ReadRun run(&sums, file, begin);
  for (std::uint64_t at = begin; at < end;) {  // in parts of any size
    const std::uint64_t n = std::min<std::uint64_t>(end - at, 1 + at * 7 % 50'000);
    run.take(std::span(folder.files[file]).subspan(at, n));
    at += n;
  }
  run.end();
}

TEST(ReadSums, AChunkIsWholeWhenItsPiecesAddUp) {
  const Folder folder;
  ReadSums sums("folder", folder.manifest);
  EXPECT_EQ(sums.file_at("folder/file1"), 1u);
  EXPECT_EQ(sums.file_at("elsewhere/file1"), std::nullopt);
  EXPECT_EQ(sums.file_at("file1"), std::nullopt);
  note(sums, folder, 0, chunk_bytes + 100, 2 * chunk_bytes);
  EXPECT_EQ(sums.chunk(0, 0).state, State::open);
  EXPECT_EQ(sums.chunk(0, 1).state, State::open);
  ASSERT_EQ(sums.chunk(0, 1).pieces.size(), 1u);
  EXPECT_EQ(sums.chunk(0, 1).pieces[0].begin, chunk_bytes + 100);
  note(sums, folder, 0, 5, chunk_bytes + 100);
  EXPECT_EQ(sums.chunk(0, 0).state, State::open);
  EXPECT_EQ(sums.chunk(0, 1).state, State::whole);
  note(sums, folder, 0, 0, 5);
  EXPECT_EQ(sums.chunk(0, 0).state, State::whole);
  note(sums, folder, 0, 3 * chunk_bytes, folder.files[0].size());  // the last chunk is shorter
  EXPECT_EQ(sums.chunk(0, 3).state, State::whole);
  note(sums, folder, 1, 0, folder.files[1].size());
  EXPECT_EQ(sums.chunk(1, 0).state, State::whole);
}

TEST(ReadSums, BytesThatAreOthersAreDamage) {
  Folder folder;
  ReadSums sums("folder", folder.manifest);
  const Bytes written = folder.files[0];
  folder.files[0][chunk_bytes + 7] ^= std::byte{1};
  note(sums, folder, 0, 0, 2 * chunk_bytes);
  EXPECT_EQ(sums.chunk(0, 0).state, State::whole);
  EXPECT_EQ(sums.chunk(0, 1).state, State::damaged);
  // Two reads of the same range with different bytes are damage, even while the rest of the chunk is unread.
  note(sums, folder, 0, 2 * chunk_bytes, 2 * chunk_bytes + 9);
  EXPECT_EQ(sums.chunk(0, 2).state, State::open);
  folder.files[0][2 * chunk_bytes] ^= std::byte{1};
  note(sums, folder, 0, 2 * chunk_bytes, 2 * chunk_bytes + 9);
  EXPECT_EQ(sums.chunk(0, 2).state, State::damaged);
}

TEST(ReadSums, WhatWasNotReadToItsEndIsNotNoted) {
  const Folder folder;
  ReadSums sums("folder", folder.manifest);
  ReadRun run(&sums, 0, 0);
  run.take(std::span(folder.files[0]).first(chunk_bytes));
  EXPECT_EQ(sums.chunk(0, 0).pieces.size(), 0u);
  EXPECT_EQ(sums.chunk(0, 0).state, State::open);
  run.end();
  EXPECT_EQ(sums.chunk(0, 0).state, State::whole);
  ReadRun(nullptr, 0, 0).take(folder.files[0]);  // without a record
}

TEST(ReadSums, AFileThatHasGrownSaysNothing) {
  Folder folder;
  ReadSums sums("folder", folder.manifest);
  folder.files[1].resize(3 * chunk_bytes);
  note(sums, folder, 1, 0, folder.files[1].size());
  EXPECT_EQ(sums.chunk(1, 0).state, State::open);
}

TEST(ReadSums, WhatIsToldIsSmallAndMustBeWhatWasTold) {
  const Folder folder;
  ReadSums sums("folder", folder.manifest), other("folder", folder.manifest);
  note(sums, folder, 0, 0, folder.files[0].size());
  EXPECT_LE(sums.told().size(), 32u);
  other.hear_all(std::vector{sums.told(), std::string()});
  EXPECT_EQ(other.chunk(0, 2).state, State::whole);
  EXPECT_EQ(other.chunk(1, 0).state, State::open);
  other.hear_all(std::vector<std::string>());
  EXPECT_EQ(other.chunk(0, 2).state, State::open);
  Manifest changed = folder.manifest;
  changed.step = 1;
  ReadSums another("folder", changed);  // another checkpoint with the same files
  another.hear_all(std::vector{sums.told()});
  EXPECT_EQ(another.chunk(0, 2).state, State::open);
  note(other, folder, 0, 1, 2);
  const std::string told = other.told();
  for (std::size_t size = 1; size < told.size(); size += 4)
    EXPECT_THROW(other.hear_all(std::vector{told.substr(0, size)}), Error) << size << " of " << told.size();
  std::string beyond = told;
  beyond[beyond.size() - 16] = 100;  // chunk 100
  EXPECT_THROW(other.hear_all(std::vector{beyond}), Error);
}

// Any readers of any parts, including repeated and overlapping ones: all ranks have the same record, exactly the unread
// parts are open, and a bit that changed on the disk is found by one of the callers that read the rest, exactly as if
// everything were read again.
TEST(ReadSums, TogetherWithTheRestItIsAsGoodAsReadingEverything) {
  const TemporaryFolder place;
  Folder folder;
  const auto write_files = [&] {
    for (std::size_t i = 0; i < folder.files.size(); ++i)
      write_file_atomically(
          path_join(place.path(), concat("file", i)),
          std::string_view(reinterpret_cast<const char*>(folder.files[i].data()), folder.files[i].size()));
  };
  write_files();
  write_manifest(place.path(), folder.manifest);
  EXPECT_TRUE(rc::check([&] {
    const auto below = [](std::uint64_t end) {
      return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::uint64_t>(0, end));
    };
    const bool damaged = below(3) == 0;
    const std::size_t file = below(2);
    const std::uint64_t byte = below(folder.files[file].size());
    if (damaged) folder.files[file][byte] ^= std::byte{64}, write_files();

    const int ranks = 1 + static_cast<int>(below(4));
    std::vector<std::unique_ptr<ReadSums>> sums;
    std::vector<std::string> told;
    std::vector<std::vector<bool>> read(folder.files.size());
    for (std::size_t i = 0; i < read.size(); ++i) read[i].resize(folder.files[i].size());
    for (int rank = 0; rank < ranks; ++rank) {
      sums.push_back(std::make_unique<ReadSums>(place.path(), folder.manifest));
      for (std::uint64_t reads = below(6); reads > 0; --reads) {
        const std::size_t of = below(2);
        const std::uint64_t size = folder.files[of].size(), unit = below(2) == 0 ? size / 4 : 1;
        const std::uint64_t a = below(size / unit + 1) * unit, b = below(size / unit + 1) * unit;
        note(*sums.back(), folder, of, std::min(a, b), std::max(a, b));
        std::fill(read[of].begin() + static_cast<std::ptrdiff_t>(std::min(a, b)),
                  read[of].begin() + static_cast<std::ptrdiff_t>(std::max(a, b)), true);
      }
      told.push_back(sums.back()->told());
    }
    for (const auto& own : sums) own->hear_all(told);
    for (const auto& own : sums) RC_ASSERT(own->told() == sums[0]->told());

    std::uint64_t unread = 0, found = 0, bytes_read = 0;
    for (const auto& bytes : read) unread += static_cast<std::uint64_t>(std::count(bytes.begin(), bytes.end(), false));
    std::string text;
    for (int rank = 0; rank < ranks; ++rank) {
      const Verdict verdict =
          verify_folder(place.path(), {rank, ranks}, {}, sums[static_cast<std::size_t>(rank)].get());
      found += verdict.damages.size();
      bytes_read += verdict.bytes_read;
      text += verdict.text();
    }
    const Verdict expected = verify_folder(place.path());
    if (damaged) folder.files[file][byte] ^= std::byte{64}, write_files();
    RC_ASSERT(found == (damaged ? 1u : 0u));
    RC_ASSERT(text == expected.text());
    if (!damaged) RC_ASSERT(bytes_read >= unread);  // larger if parts overlap: only one of them counts
  }));
}

}  // namespace
}  // namespace tessera::format
