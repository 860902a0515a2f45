// The agent and its ranks under `ulimit -f`.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <tessera/base/file.h>

#include "agent_under_test.h"

namespace tessera::launch {
namespace {

/// Limits file sizes to `bytes` for processes started during its lifetime.
class SmallFiles {
 public:
  explicit SmallFiles(rlim_t bytes) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &former_), 0);
    const rlimit now{bytes, former_.rlim_max};
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &now), 0);
  }
  ~SmallFiles() { EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &former_), 0); }

 private:
  rlimit former_{};
};

Captured run_with(rlim_t bytes, const Strings& command, const LaunchOptions& options = {}) {
  std::optional<AgentUnderTest> agent;
  {
    const SmallFiles limit(bytes);
    agent.emplace(command, options);
  }
  return agent->finish();
}

TEST(FileLimit, TooSmallForTheBoardIsSaidBeforeAnythingStarts) {
  const Captured done = run_with(64 << 10, shell("echo started"));
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.out, "");
  EXPECT_TRUE(contains(done.err, "cannot allocate shared memory for the board of 1 ranks")) << done.err;
  EXPECT_TRUE(contains(done.err, "may write files of at most 65536 bytes; raise that limit (ulimit -f")) << done.err;
}

TEST(FileLimit, ALogThatReachesItDoesNotEndTheJob) {
  const TemporaryFolder folder;
  LaunchOptions options;
  options.log_dir = folder.path();
  options.tee = 0;
  const Captured done = run_with(8 << 20, shell("yes 'a line of the rank' | head -n 500000; echo the end"), options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "rank-0.log: File too large")) << done.err;
  EXPECT_TRUE(contains(done.out, "the end\n"));
}

TEST(FileLimit, ARankThatDiesOfItIsExplained) {
  const TemporaryFolder folder;
  const Captured done =
      run_with(8 << 20, shell(concat("exec head -c 9000000 /dev/zero > ", path_join(folder.path(), "large"))));
  EXPECT_EQ(done.exit_code, 128 + SIGXFSZ);
  EXPECT_TRUE(contains(done.err, "was killed by SIGXFSZ (a file grew beyond the limit of this process: ulimit -f)"))
      << done.err;
}

}  // namespace
}  // namespace tessera::launch
