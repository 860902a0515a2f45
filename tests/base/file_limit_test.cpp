#include <tessera/base/system/file_limit.h>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera {
namespace {

/// Simulates a program started under `ulimit -f`, with SIGXFSZ at its default.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) : handler_(::signal(SIGXFSZ, SIG_DFL)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &former_), 0);
    const rlimit now{bytes, former_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~SmallFiles() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &former_), 0);
    ::signal(SIGXFSZ, handler_);
  }

 private:
  rlimit former_{};
  sighandler_t handler_;
};

std::string error_of_a_write(const std::string& path, std::size_t bytes) {
  try {
    write_file_atomically(path, std::string(bytes, 'x'));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(FileLimit, AWriteBeyondItFailsWithLimitAndRemedy) {
  const TemporaryFolder folder;
  std::string told;
  {
    const SmallFiles limit(1000);
    ignore_file_limit_signal();
    EXPECT_EQ(error_of_a_write(path_join(folder.path(), "small"), 1000), "");
    told = error_of_a_write(path_join(folder.path(), "large"), 1001);
  }
  EXPECT_NE(told.find("/large': File too large: this process may write files of at most 1000 bytes"), std::string::npos)
      << told;
  EXPECT_NE(told.find("(ulimit -f unlimited)"), std::string::npos) << told;
  EXPECT_EQ(list_folder(folder.path()), std::vector<std::string>{"small"});
}

TEST(FileLimit, AHandlerOfTheProgramStays) {
  const auto before = ::signal(SIGXFSZ, [](int) {});
  const auto mine = ::signal(SIGXFSZ, [](int) {});
  ::signal(SIGXFSZ, mine);
  ignore_file_limit_signal();
  EXPECT_EQ(::signal(SIGXFSZ, before), mine);
}

TEST(FileLimit, OtherReasonsAreWhatTheyWere) {
  EXPECT_EQ(write_error_text(ENOSPC), std::strerror(ENOSPC));
  EXPECT_EQ(write_error_text(EFBIG), std::strerror(EFBIG)) << "a limit of the file system, not the process";
}

}  // namespace
}  // namespace tessera
