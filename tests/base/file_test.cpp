#include <tessera/base/error.h>
#include <tessera/base/file.h>

#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>

using namespace tessera;

TEST(File, AtomicWriteReplacesOrLeavesAlone) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "a.txt");
  write_file_atomically(path, "one");
  EXPECT_EQ(read_file(path), "one");
  EXPECT_THROW(write_file_atomically(path, [](int) { throw Error("disk on fire"); }), Error);
  EXPECT_EQ(read_file(path), "one");
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"a.txt"});  // no temporary file is left
}

TEST(File, ReadingBadPathsIsTheUsersMistake) {
  const TemporaryFolder folder;
  EXPECT_THROW(read_file(path_join(folder.path(), "missing")), InputError);
  EXPECT_THROW(read_file(folder.path()), InputError);
  write_file_atomically(path_join(folder.path(), "big"), std::string(100, 'x'));
  EXPECT_THROW(read_file(path_join(folder.path(), "big"), 99), InputError);
  EXPECT_THROW(MappedFile(path_join(folder.path(), "missing")), InputError);
}

TEST(File, AFileThatCannotBeReadToItsEndCountsAsEmpty) {
  EXPECT_EQ(read_file_or_empty("/proc/sys/kernel/ostype"), "Linux\n");
  EXPECT_EQ(read_file_or_empty("/proc/0/stat"), "");
  EXPECT_EQ(read_file_or_empty("/proc/self/mem"), "");  // opens, but page 0 cannot be read: as when a process ends
}

TEST(File, MappingHoldsTheBytesAndMoves) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "m");
  write_file_atomically(path, "bytes");
  MappedFile a(path);
  MappedFile b(std::move(a));
  ASSERT_EQ(b.bytes().size(), 5u);
  EXPECT_EQ(static_cast<char>(b.bytes()[4]), 's');
  write_file_atomically(path, "");
  EXPECT_TRUE(MappedFile(path).bytes().empty());
}

TEST(File, TemporaryFolderGoesWithItsContents) {
  std::string path;
  {
    const TemporaryFolder folder;
    path = folder.path();
    make_folders(path_join(path, "a/b/c"));
    write_file_atomically(path_join(path, "a/b/c/d"), "x");
    EXPECT_TRUE(is_directory(path_join(path, "a/b")));
  }
  EXPECT_FALSE(path_exists(path));
}

TEST(File, AMissingFolderForTemporaryFilesIsTheUsersMistake) {
  const TemporaryFolder folder;
  const char* const given = std::getenv("TMPDIR");
  const std::optional<std::string> before = given != nullptr ? std::optional<std::string>(given) : std::nullopt;
  ::setenv("TMPDIR", path_join(folder.path(), "missing").c_str(), 1);
  std::string told;
  try {
    const TemporaryFolder inside("tessera-tokens");
  } catch (const InputError& error) {
    told = error.what();
  }
  before ? ::setenv("TMPDIR", before->c_str(), 1) : ::unsetenv("TMPDIR");
  EXPECT_NE(told.find("/missing/tessera-tokens."), std::string::npos) << told;
  EXPECT_NE(told.find("set TMPDIR to an existing folder that can be written"), std::string::npos) << told;
}

TEST(Check, NamesConditionPlaceAndNumbers) {
  try {
    TESSERA_CHECK(1 + 1 == 3, "sizes ", 2, " and ", 3);
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    EXPECT_NE(text.find("1 + 1 == 3"), std::string::npos);
    EXPECT_NE(text.find("sizes 2 and 3"), std::string::npos);
    EXPECT_NE(text.find("file_test.cpp:"), std::string::npos);
    EXPECT_EQ(e.exit_code(), ExitCode::failed);
  }
}
