// Reading a file into memory: the right bytes, and their recorded checksums.

#include <tessera/checkpoint/file_reader.h>

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

namespace tessera::checkpoint {
namespace {

class FileReaderTest : public ::testing::Test {
 protected:
  FileReaderTest() : bytes_((std::size_t{40} << 20) + 12'345, '\0') {
    unsigned value = 7;
    for (char& byte : bytes_) byte = static_cast<char>((value = value * 1664525u + 1013904223u) >> 24);
    write_file_atomically(path(), bytes_);
  }
  std::string path() const { return path_join(folder_.path(), "data"); }
  std::string read(const FileReader& file, std::int64_t count, std::uint64_t offset) const {
    std::string to(static_cast<std::size_t>(count), '\0');
    file.read(to.data(), count, offset);
    return to;
  }
  std::shared_ptr<format::ReadSums> sums() const {
    format::Manifest manifest;
    manifest.files.push_back({"data", format::digest_of_file(path())});
    return std::make_shared<format::ReadSums>(folder_.path(), manifest);
  }

  TemporaryFolder folder_;
  std::string bytes_;
};

TEST_F(FileReaderTest, ReadsWhatIsThereInAnyOrder) {
  const FileReader file(path());
  const std::uint64_t size = bytes_.size();
  for (const std::uint64_t at : {std::uint64_t{0}, size - 5, std::uint64_t{20} << 20, std::uint64_t{1}, size})
    for (const std::int64_t count :
         {std::int64_t{0}, std::int64_t{1}, std::int64_t{300'000}, std::int64_t{20'000'000}}) {
      if (at + static_cast<std::uint64_t>(count) > size) continue;
      EXPECT_EQ(read(file, count, at), bytes_.substr(at, static_cast<std::size_t>(count))) << count << " at " << at;
    }
}

TEST_F(FileReaderTest, NotesWhatItReads) {
  const auto noted = sums();
  const FileReader file(path(), noted);
  constexpr std::uint64_t chunk = format::kDigestChunk;
  read(file, static_cast<std::int64_t>(3 * chunk - 100), 100);
  EXPECT_EQ(noted->chunk(0, 0).state, format::ChunkSums::State::open);
  EXPECT_EQ(noted->chunk(0, 1).state, format::ChunkSums::State::whole);
  EXPECT_EQ(noted->chunk(0, 2).state, format::ChunkSums::State::whole);
  EXPECT_EQ(noted->chunk(0, 3).pieces.size(), 0u);
  read(file, 100, 0);
  EXPECT_EQ(noted->chunk(0, 0).state, format::ChunkSums::State::whole);

  write_file_atomically(path_join(folder_.path(), "other"), bytes_);
  read(FileReader(path_join(folder_.path(), "other"), noted), 1000, 5 * chunk);  // not a file of the manifest
  EXPECT_EQ(noted->chunk(0, 5).pieces.size(), 0u);
}

TEST_F(FileReaderTest, AFileThatEndsEarlyIsToldAndNotNoted) {
  const auto noted = sums();
  const FileReader file(path(), noted);
  std::filesystem::resize_file(path(), 1000);
  try {
    read(file, 2000, 0);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("data: the file ends at byte 1000, but its header specifies more data"),
              std::string::npos)
        << error.what();
  }
  EXPECT_EQ(noted->chunk(0, 0).pieces.size(), 0u);
  EXPECT_THROW(FileReader(path_join(folder_.path(), "nowhere")), Error);
}

}  // namespace
}  // namespace tessera::checkpoint
