#include <tessera/base/append_file.h>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera {
namespace {

// Limits the size of files to simulate a full disk: write(2) writes as much as fits, then fails.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) {
    former_handler_ = ::signal(SIGXFSZ, SIG_IGN);
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &former_), 0);
    const rlimit now{bytes, former_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~FileLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &former_), 0);
    ::signal(SIGXFSZ, former_handler_);
  }

 private:
  rlimit former_{};
  sighandler_t former_handler_ = SIG_DFL;
};

TEST(AppendFile, WhatCannotBeWrittenIsKeptAndComesFirst) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "lines");
  write_file_atomically(path, "old\n");
  AppendFile file(path);
  file.append("one\n");
  {
    const FileLimit full(10);  // half of the second line fits
    file.append("two\n");
    EXPECT_EQ(read_file(path), "old\none\ntw");
    file.append("three\n");
    EXPECT_EQ(file.waiting(), 8u);
  }
  file.append("four\n");
  EXPECT_EQ(read_file(path), "old\none\ntwo\nthree\nfour\n");
  EXPECT_EQ(file.waiting(), 0u);
}

TEST(AppendFile, OnlyOpeningFails) {
  const TemporaryFolder folder;
  EXPECT_THROW(AppendFile(path_join(folder.path(), "absent")), Error);
  AppendFile made(path_join(folder.path(), "made"), O_CREAT | O_EXCL);
  made.append("x");
  AppendFile moved = std::move(made);
  moved.append("y");
  EXPECT_EQ(read_file(moved.path()), "xy");
  EXPECT_THROW(AppendFile(moved.path(), O_CREAT | O_EXCL), Error);
}

TEST(AppendFile, AFolderThatWasMovedOrRemovedIsToldAndTheFileBegunAgain) {
  const TemporaryFolder folder;
  const std::string out = path_join(folder.path(), "out"), path = path_join(out, "metrics.jsonl");
  make_folders(out);
  AppendFile file(path, O_CREAT);
  file.append("one\n");
  ASSERT_EQ(::rename(out.c_str(), (out + ".moved").c_str()), 0);
  ::testing::internal::CaptureStderr();
  file.append("two\n");
  file.append("three\n");
  std::string told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(read_file(path), "two\nthree\n");
  EXPECT_EQ(read_file(path_join(out + ".moved", "metrics.jsonl")), "one\n");
  const auto first = told.find(path + " was moved or removed");
  EXPECT_NE(first, std::string::npos) << told;
  EXPECT_EQ(told.find("was moved or removed", first + path.size() + 2), std::string::npos)
      << "reported twice: " << told;

  remove_tree(out);
  ::testing::internal::CaptureStderr();
  file.append("four\n");
  told = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(read_file(path), "four\n");
  EXPECT_NE(told.find(path), std::string::npos) << told;

  write_file_atomically(path, "a person's\n");  // another file with this name
  file.append("five\n");
  EXPECT_EQ(read_file(path), "a person's\nfive\n");
}

TEST(AppendFile, WhereNoFolderCanBeThereTheOldFileIsWritten) {
  const TemporaryFolder folder;
  const std::string out = path_join(folder.path(), "out"), path = path_join(out, "lines");
  make_folders(out);
  AppendFile file(path, O_CREAT);
  ASSERT_EQ(::rename(out.c_str(), (out + ".moved").c_str()), 0);
  write_file_atomically(out, "a file in the folder's place");
  file.append("one\n");
  EXPECT_EQ(read_file(path_join(out + ".moved", "lines")), "one\n");
  EXPECT_EQ(file.waiting(), 0u);
}

}  // namespace
}  // namespace tessera
