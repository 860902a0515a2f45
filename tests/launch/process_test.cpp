#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/agent/watchdog.h>

#include <tests/error_of.h>
#include <tests/stopwatch.h>
#include "agent_under_test.h"

namespace tessera::launch {
namespace {

std::string message_of(const Strings& command) {
  return tessera::testing::error_of([&] { run_and_capture(command); });
}

TEST(Process, OutputErrorsAndExitCodeAreCaptured) {
  const Captured done = run_and_capture({"sh", "-c", "echo to out; echo to err >&2; exit 7"});
  EXPECT_EQ(done.out, "to out\n");
  EXPECT_EQ(done.err, "to err\n");
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_FALSE(done.timed_out);
}

TEST(Process, ASignalGives128PlusItsNumber) {
  EXPECT_EQ(run_and_capture({"sh", "-c", "kill -9 $$"}).exit_code, 137);
  EXPECT_EQ(run_and_capture({"sh", "-c", "kill -TERM $$"}).exit_code, 143);
}

TEST(Process, VariablesAreAddedReplacedAndRemoved) {
  ::setenv("TESSERA_TEST_REMOVED", "1", 1);
  ::setenv("TESSERA_TEST_REPLACED", "old", 1);
  const Captured done = run_and_capture(
      {"sh", "-c", "echo $TESSERA_TEST_ADDED $TESSERA_TEST_REPLACED ${TESSERA_TEST_REMOVED-gone}"},
      {{"TESSERA_TEST_ADDED", "a b"}, {"TESSERA_TEST_REPLACED", "new"}, {"TESSERA_TEST_REMOVED", std::nullopt}});
  EXPECT_EQ(done.out, "a b new gone\n");
}

TEST(Process, ArgumentsArePassedWithoutAShell) {
  EXPECT_EQ(run_and_capture({"printf", "%s|", "a b", "$HOME", "*", ""}).out, "a b|$HOME|*||");
}

TEST(Process, MoreOutputThanAPipeHolds) {
  const Captured done = run_and_capture({"sh", "-c", "head -c 1000000 /dev/zero; head -c 1000000 /dev/zero >&2"});
  EXPECT_EQ(done.out.size(), 1'000'000u);
  EXPECT_EQ(done.err.size(), 1'000'000u);
}

TEST(Process, ATimeoutKillsTheWholeGroup) {
  const testing::Stopwatch watch;
  const Captured done = run_and_capture({"sh", "-c", "sleep 600 & echo child $!; wait"}, {}, 0.3);
  EXPECT_LT(watch.seconds(), watch.limit(2));
  EXPECT_TRUE(done.timed_out);
  EXPECT_EQ(done.exit_code, 137);
  const int child = pids_after(done.out, "child ").at(0);
  EXPECT_TRUE(eventually([&] { return !is_running(child); }));
}

TEST(Process, AnEndlessWriterIsEnded) {
  const testing::Stopwatch watch;
  const Captured done = run_and_capture({"yes"}, {}, 0.5);
  EXPECT_LT(watch.seconds(), watch.limit(2));
  EXPECT_TRUE(done.timed_out);
  EXPECT_TRUE(contains(done.out, "y\ny\n"));
}

TEST(Process, WhatCannotStartIsNamed) {
  const TemporaryFolder folder;
  const std::string plain = path_join(folder.path(), "plain");
  write_file_atomically(plain, "not a program\n");
  EXPECT_TRUE(contains(message_of({plain}), "'" + plain + "'")) << message_of({plain});
  EXPECT_TRUE(contains(message_of({plain}), "is not executable")) << message_of({plain});
  ASSERT_EQ(run_and_capture({"chmod", "+x", plain}).exit_code, 0);
  EXPECT_TRUE(contains(message_of({plain}), "a script needs a first line")) << message_of({plain});
  EXPECT_TRUE(contains(message_of({folder.path()}), "is not a file")) << message_of({folder.path()});
  EXPECT_TRUE(contains(message_of({folder.path() + "/missing"}), "No such file"))
      << message_of({folder.path() + "/missing"});
  EXPECT_TRUE(contains(message_of({"no-such-program-anywhere"}), "no such program in PATH"));
  EXPECT_TRUE(contains(message_of({""}), "without a name"));
  EXPECT_TRUE(contains(message_of({}), "none was given"));
}

TEST(Process, DescriptionsNameTheSignal) {
  EXPECT_EQ(describe_status(9), "was killed by SIGKILL");
  EXPECT_EQ(describe_status(11), "was killed by SIGSEGV");
  EXPECT_EQ(describe_status(3 << 8), "ended with exit code 3");
  EXPECT_EQ(exit_code_of(6), 134);
  EXPECT_EQ(exit_code_of(255 << 8), 255);
}

TEST(Process, StatusDoesNotCollectTheChild) {
  ProcessOptions options;
  options.command = {"sh", "-c", "exit 5"};
  Process process(options);
  ASSERT_TRUE(eventually([&] { return process.status().has_value(); }));
  EXPECT_EQ(exit_code_of(*process.status()), 5);
  EXPECT_FALSE(process.group_is_alive());
  EXPECT_EQ(exit_code_of(process.reap()), 5);
  EXPECT_THROW(process.reap(), Error);
}

TEST(Process, TheDestructorEndsTheGroup) {
  int child = 0;
  {
    ProcessOptions options;
    options.command = {"sh", "-c", "trap '' TERM; sleep 600 & echo child $!; wait"};
    options.capture_stdout = true;
    Process process(options);
    std::string text;
    ASSERT_TRUE(eventually([&] {
      char buffer[100];
      const ssize_t got = ::read(process.stdout_pipe().get(), buffer, sizeof buffer);
      if (got > 0) text.append(buffer, static_cast<std::size_t>(got));
      return contains(text, "\n");
    }));
    child = pids_after(text, "child ").at(0);
    EXPECT_TRUE(process.group_is_alive());
    EXPECT_TRUE(is_running(child));
  }
  EXPECT_TRUE(eventually([&] { return !is_running(child); }));
}

TEST(Watchdog, RemovesTheFolderOfAnAgentThatIsKilled) {
  const TemporaryFolder parent;
  const std::string folder = path_join(parent.path(), "tessera-memory"), kept = path_join(parent.path(), "kept");
  make_folders(path_join(folder, "checkpoint-3/.part"));
  make_folders(kept);
  for (int i = 0; i < 300; ++i) write_file_atomically(path_join(folder, concat("checkpoint-3/file-", i)), "x");
  write_file_atomically(path_join(folder, "checkpoint-3/.part/.hidden"), "x");
  write_file_atomically(path_join(kept, "file"), "x");
  ASSERT_EQ(::symlink(kept.c_str(), path_join(folder, "link").c_str()), 0);
  const pid_t agent = ::fork();
  if (agent == 0) {
    const Watchdog watchdog;
    watchdog.own_folder(folder);
    ::raise(SIGKILL);
  }
  ::waitpid(agent, nullptr, 0);
  EXPECT_TRUE(eventually([&] { return !path_exists(folder); }));
  EXPECT_TRUE(path_exists(path_join(kept, "file")));
}

TEST(Watchdog, KillsWhatWasNotForgotten) {
  ProcessOptions options;
  options.command = {"sleep", "600"};
  std::optional<Process> kept, forgotten;
  {
    const Watchdog watchdog;
    options.announce_fd = watchdog.announce_fd();
    kept.emplace(options);
    forgotten.emplace(options);
    watchdog.forget(forgotten->pid());
  }
  EXPECT_TRUE(eventually([&] { return kept->status().has_value(); }));
  EXPECT_EQ(describe_status(*kept->status()), "was killed by SIGKILL");
  EXPECT_FALSE(forgotten->status().has_value());
}

}  // namespace
}  // namespace tessera::launch
