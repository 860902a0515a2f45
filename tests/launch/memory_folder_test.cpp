#include <tessera/launch/agent/memory_folder.h>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>

namespace tessera::launch {
namespace {

/// The pid of a process that has ended.
pid_t dead_process() {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  int status = 0;
  ::waitpid(child, &status, 0);
  return child;
}

TEST(MemoryFolder, LivesAsLongAsItsOwnerAndIsForItsUserOnly) {
  const TemporaryFolder parent;
  std::string path;
  {
    const MemoryFolder folder(parent.path());
    path = folder.path();
    struct stat facts{};
    ASSERT_EQ(::stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777, 0700u);
    write_file_atomically(path_join(path, "state"), "x");
  }
  EXPECT_FALSE(path_exists(path));
}

TEST(MemoryFolder, RemovesWhatKilledAgentsLeftAndNothingElse) {
  const TemporaryFolder parent;
  const auto at = [&](const std::string& name) { return path_join(parent.path(), name); };
  const std::string stale = at(concat("tessera-memory-", dead_process(), "-abcdef"));
  const std::string alive = at(concat("tessera-memory-", ::getppid(), "-abcdef"));
  const std::string foreign = at("tessera-memory-x-abcdef"),
                    link = at(concat("tessera-memory-", dead_process(), "-ghijkl"));
  for (const std::string& path : {stale, alive, foreign}) make_folders(path_join(path, "checkpoint-1"));
  ASSERT_EQ(::symlink(alive.c_str(), link.c_str()), 0);
  const MemoryFolder folder(parent.path());
  EXPECT_FALSE(path_exists(stale));
  EXPECT_TRUE(path_exists(path_join(alive, "checkpoint-1")));
  EXPECT_TRUE(path_exists(foreign));
  EXPECT_TRUE(path_exists(link));
}

TEST(MemoryFolder, IsEmptyWhereThereIsNoSuchPlace) {
  EXPECT_EQ(MemoryFolder("/no/such/place").path(), "");
  EXPECT_EQ(MemoryFolder().path(), "");
}

}  // namespace
}  // namespace tessera::launch
