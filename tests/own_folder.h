#pragma once
/// \file
/// A test program that includes this header in any of its files runs in a new, empty folder with empty caches. Files in
/// the checkout or in the folder where it was started cannot affect it, even if a test passes their names ("out",
/// "gpt2-tiny") to the product, and programs that run at the same time do not share their output.

#include <gtest/gtest.h>

#include <tessera/base/file.h>

#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>

namespace tessera::testing {

/// During its lifetime this process works in a new, empty folder.
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

/// Owned by GoogleTest. A program has only one, however many of its files include this header.
inline ::testing::Environment* const own_folder = ::testing::AddGlobalTestEnvironment(new OwnFolder);

}  // namespace tessera::testing
