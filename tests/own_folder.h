#pragma once
/// \file
/// A test program that includes this, in any of its files, runs in a new, empty folder, with empty caches: what lies in
/// the checkout or in the folder that it was started in, under a name that a test gives to the product ("out",
/// "gpt2-tiny"), changes nothing, and programs that run at the same time do not share what they write.

#include <gtest/gtest.h>

#include <tessera/base/file.h>

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace tessera::testing {

/// As long as it lives, this process is in a new, empty folder.
class InEmptyFolder {
 public:
  InEmptyFolder() : former_(absolute_path(".")) { EXPECT_EQ(::chdir(folder_.path().c_str()), 0); }
  ~InEmptyFolder() { EXPECT_EQ(::chdir(former_.c_str()), 0); }
  InEmptyFolder(const InEmptyFolder&) = delete;
  InEmptyFolder& operator=(const InEmptyFolder&) = delete;

 private:
  std::string former_;
  TemporaryFolder folder_;
};

class OwnFolder final : public ::testing::Environment {
 public:
  void SetUp() override {
    folder_.emplace();
    caches_.emplace();
    ::setenv("XDG_CACHE_HOME", caches_->path().c_str(), 1);
    ::unsetenv("TESSERA_CACHE");
  }
  void TearDown() override {
    folder_.reset();
    caches_.reset();
  }

 private:
  std::optional<InEmptyFolder> folder_;
  std::optional<TemporaryFolder> caches_;
};

/// GoogleTest owns it. One of a program, however many of its files include this.
inline ::testing::Environment* const own_folder = ::testing::AddGlobalTestEnvironment(new OwnFolder);

}  // namespace tessera::testing
