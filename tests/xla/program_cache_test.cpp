#include <gtest/gtest.h>
#include <tessera/base/file.h>
#include <tessera/xla/pjrt/program_cache.h>
#include <tests/own_folder.h>

#include <filesystem>

namespace tessera {
namespace {

std::string some(std::size_t bytes, char c) { return std::string(bytes, c) + '\0' + '\n' + c; }

class XlaProgramCache : public ::testing::Test {
 protected:
  std::string file(const std::string& key) const { return path_join(folder_, key + ".program"); }
  void age(const std::string& key, int hours) const {
    std::filesystem::last_write_time(file(key),
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(hours));
  }
  TemporaryFolder temporary_;
  std::string folder_ = path_join(temporary_.path(), "made/when/needed");
};

TEST_F(XlaProgramCache, EntriesComeBackAndDamagedOnesDoNot) {
  const xla::ProgramCache cache(folder_);
  EXPECT_EQ(cache.read("a"), std::nullopt);
  cache.write("a", some(100, 'x'));
  EXPECT_EQ(cache.read("a"), some(100, 'x'));
  cache.write("a", some(50, 'y'));
  EXPECT_EQ(cache.read("a"), some(50, 'y'));
  const std::string whole = read_file(file("a"));
  for (const std::string& damaged : {whole.substr(0, whole.size() - 1), whole + "z", std::string(), std::string("x"),
                                     std::string("\n"), whole.substr(1)}) {
    write_file_atomically(file("a"), damaged);
    EXPECT_EQ(cache.read("a"), std::nullopt);
  }
  write_file_atomically(file("a"), whole);
  EXPECT_EQ(cache.read("a"), some(50, 'y'));
  EXPECT_NE(xla::ProgramCache::key_of("program"), xla::ProgramCache::key_of("program "));
}

TEST_F(XlaProgramCache, WhatWasUsedLongestAgoIsRemoved) {
  const xla::ProgramCache cache(folder_, 1000);
  for (const char* const key : {"a", "b", "c"}) cache.write(key, some(200, *key));
  age("a", 3);
  age("b", 2);
  age("c", 1);
  EXPECT_TRUE(cache.read("a").has_value());  // used now
  cache.write("d", some(300, 'd'));
  EXPECT_FALSE(cache.read("b").has_value());
  for (const char* const key : {"a", "c", "d"}) EXPECT_TRUE(cache.read(key).has_value()) << key;
  cache.write("e", some(2000, 'e'));  // larger than the limit for all entries
  EXPECT_FALSE(cache.read("e").has_value());
  EXPECT_TRUE(cache.read("d").has_value());
}

TEST_F(XlaProgramCache, AFolderThatCannotBeWrittenIsNoError) {
  write_file_atomically(path_join(temporary_.path(), "file"), "");
  const xla::ProgramCache cache(path_join(temporary_.path(), "file"));
  cache.write("a", "bytes");
  EXPECT_EQ(cache.read("a"), std::nullopt);
}

}  // namespace
}  // namespace tessera
