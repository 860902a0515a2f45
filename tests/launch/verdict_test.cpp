#include <tessera/launch/agent/oom.h>
#include <tessera/launch/watch/proc_status.h>
#include <tessera/launch/watch/verdict.h>

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent_under_test.h"

namespace tessera::launch {
namespace {

constexpr int exit_1 = 1 << 8;

TEST(Verdict, TheSignalIsSurerThanWhatFollowsIt) {
  EXPECT_EQ(first_failure(
                {{0, exit_1, 10, 5, "all_reduce: rank 2 is gone"}, {1, exit_1, 11, 0, ""}, {2, SIGKILL, 30, 0, ""}}),
            2u);
  EXPECT_EQ(first_failure({{0, SIGSEGV, 20, 0, ""}, {2, SIGKILL, 30, 0, ""}}), 0u) << "the first of two";
}

TEST(Verdict, OwnReasonsAreSurerThanALostPeer) {
  const Candidate victim = {0, exit_1, 10, 5,
                            "RuntimeError: [gloo/transport/tcp/pair.cc] Connection closed by peer [127.0.0.1]:4"};
  const Candidate aborted = {1, SIGABRT, 12, 0, "terminate called ... Connection reset by peer"};
  const Candidate cause = {2, std::nullopt, 50, 40, "step 3: the loss is not a number"};
  EXPECT_EQ(guilt(victim), Guilt::victim);
  EXPECT_EQ(guilt(aborted), Guilt::victim);
  EXPECT_EQ(guilt(cause), Guilt::failed);
  EXPECT_EQ(first_failure({victim, aborted, cause}), 2u);
  EXPECT_EQ(guilt({3, SIGPIPE, 1, 0, ""}), Guilt::victim);
}

TEST(Verdict, OneThatFollowsAnotherIsNamedLast) {
  const Candidate follower = {1, exit_1, 10, 9, failed_elsewhere};
  EXPECT_EQ(guilt(follower), Guilt::follower);
  EXPECT_EQ(first_failure({follower, {0, std::nullopt, 50, 40, "cannot write checkpoint-20"}}), 1u);
  EXPECT_EQ(first_failure({follower, {2, exit_1, 12, 0, ""}}), 1u);
  EXPECT_EQ(first_failure({follower, {2, exit_1, 12, 11, "all_reduce: rank 1 is gone"}}), 1u);
}

TEST(Verdict, TheFirstVerdictCounts) {
  EXPECT_EQ(first_failure({{0, exit_1, 10, 9, "a"}, {1, exit_1, 12, 7, "b"}, {2, std::nullopt, 13, 8, "c"}}), 1u);
  EXPECT_EQ(first_failure({{0, exit_1, 10, 0, ""}, {1, exit_1, 9, 0, ""}}), 1u);
  EXPECT_EQ(first_failure({{0, exit_1, 10, 0, ""}, {1, std::nullopt, 20, 15, "the file is missing"}}), 1u)
      << "a rank without a message may have failed because of another one";
}

TEST(Oom, TheCounterOfEitherVersion) {
  EXPECT_EQ(oom_counter_file("9:name=systemd:/\n4:memory:/job/7\n0::/x\n"),
            "/sys/fs/cgroup/memory/job/7/memory.oom_control");
  EXPECT_EQ(oom_counter_file("0::/user.slice/a\n"), "/sys/fs/cgroup/user.slice/a/memory.events");
  EXPECT_EQ(oom_counter_file("0::/\n", "/m"), "/m/memory.events");
  EXPECT_EQ(oom_counter_file(""), "");
  EXPECT_EQ(parse_oom_kills("low 0\noom 4\noom_kill 3\noom_group_kill 0\n"), 3);
  EXPECT_EQ(parse_oom_kills("oom_kill_disable 0\nunder_oom 0\noom_kill 12\n"), 12);
  EXPECT_EQ(parse_oom_kills("oom_kill x\n"), std::nullopt);
  EXPECT_EQ(parse_oom_kills(""), std::nullopt);
}

TEST(Oom, NoKillNoExplanation) {
  OomWatch watch;
  watch.look(::getpid());
  EXPECT_EQ(watch.explain(::getpid()), "");
  EXPECT_EQ(watch.explain(1 << 30), "");
}

TEST(ProcStatus, AStoppedChild) {
  const pid_t child = ::fork();
  if (child == 0) {
    for (;;) ::pause();
  }
  EXPECT_TRUE(eventually([&] { return read_proc_status(child)->state == 'S'; }));
  EXPECT_FALSE(read_proc_status(child)->traced);
  ::kill(child, SIGSTOP);
  EXPECT_TRUE(eventually([&] { return read_proc_status(child)->state == 'T'; }));
  EXPECT_TRUE(contains(thread_overview(child), "T (stopped by a signal)")) << thread_overview(child);
  ::kill(child, SIGKILL);
  EXPECT_TRUE(eventually([&] { return read_proc_status(child)->state == 'Z'; }));
  ::waitpid(child, nullptr, 0);
  EXPECT_FALSE(read_proc_status(child).has_value());
  EXPECT_EQ(thread_overview(child), "");
}

TEST(ProcStatus, ABusyThreadCounts) {
  std::atomic<bool> end = false;
  std::thread busy([&] {
    while (!end) {
    }
  });
  EXPECT_EQ(read_proc_status(::getpid())->state, 'R');
  const auto before = read_proc_status(::getpid())->cpu_ticks;
  EXPECT_TRUE(eventually([&] { return read_proc_status(::getpid())->cpu_ticks > before; }));
  end = true;
  busy.join();
}

}  // namespace
}  // namespace tessera::launch
