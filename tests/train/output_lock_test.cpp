// An output folder belongs to one job at a time, until that job has exited.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/train/reporting/output_lock.h>
#include <tests/error_of.h>

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <string>

namespace tessera::train {
namespace {

using tessera::testing::error_of;

std::string refusal(const std::string& folder) {
  const std::string looked = error_of([&] { require_unlocked(folder); });
  const std::string taken = error_of([&] { OutputLock(folder, "second"); });
  EXPECT_EQ(looked, taken);
  return taken;
}

TEST(OutputLock, ASecondJobIsToldOfTheFirst) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { require_unlocked(folder.path()); }), "");
  EXPECT_TRUE(list_folder(folder.path()).empty()) << "checking the lock creates no file";
  auto first = std::make_unique<OutputLock>(folder.path(), "job-a");
  const std::string text = refusal(folder.path());
  for (const std::string& part :
       {folder.path(), std::string("job job-a, "), concat("process ", ::getpid(), " on host "), std::string("one job")})
    EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
  first.reset();
  EXPECT_TRUE(list_folder(folder.path()).empty());
  EXPECT_EQ(refusal(folder.path()), "");
}

TEST(OutputLock, AKilledJobHoldsNothing) {
  const TemporaryFolder folder;
  int ready[2];
  ASSERT_EQ(::pipe(ready), 0);
  const pid_t child = ::fork();
  if (child == 0) {
    const OutputLock lock(folder.path(), "");
    const ssize_t written = ::write(ready[1], "x", 1);
    for (;;) ::pause();
    ::_exit(written == 1 ? 0 : 1);
  }
  char byte = 0;
  ASSERT_EQ(::read(ready[0], &byte, 1), 1);
  EXPECT_NE(refusal(folder.path()).find(concat("a job, process ", child, " on host ")), std::string::npos);
  ::kill(child, SIGKILL);
  ::waitpid(child, nullptr, 0);
  EXPECT_TRUE(path_exists(path_join(folder.path(), kOutputLock)));
  EXPECT_EQ(refusal(folder.path()), "");
  EXPECT_TRUE(list_folder(folder.path()).empty());
  ::close(ready[0]);
  ::close(ready[1]);
}

TEST(OutputLock, AMovedFolderIsTakenAgainUnlessAnotherJobHasIt) {
  const TemporaryFolder around;
  const std::string out = path_join(around.path(), "out");
  const auto move_away = [&](const std::string& name) { std::filesystem::rename(out, path_join(around.path(), name)); };
  make_folders(out);
  OutputLock lock(out, "job-a");
  lock.renew();
  move_away("first");
  EXPECT_EQ(error_of([&] { require_unlocked(out); }), "");
  lock.renew();
  EXPECT_NE(refusal(out).find("job job-a, "), std::string::npos);
  EXPECT_EQ(error_of([&] { require_unlocked(path_join(around.path(), "first")); }), "") << "no job writes there";
  move_away("second");
  make_folders(out);
  {
    const OutputLock other(out, "job-b");
    const std::string error = error_of<Error>([&] { lock.renew(); });
    for (const char* part : {"was moved or removed", "job job-b, ", "this run ends"})
      EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
  }
  lock.renew();
  EXPECT_NE(refusal(out).find("job job-a, "), std::string::npos);
}

}  // namespace
}  // namespace tessera::train
