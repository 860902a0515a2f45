/// \file
/// The agent with ranks that die, freeze and hang (fake_rank: real processes and a real board, no tensors).

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>
#include <algorithm>
#include <fstream>
#include <utility>

#include <tests/paths.h>
#include <tests/stopwatch.h>
#include "agent_under_test.h"

namespace tessera::launch {
namespace {

Strings fake(const std::string& arguments) {
  Strings command = split(arguments, ' ');
  command.insert(command.begin(), tessera::testing::build_path("tests/fake_rank"));
  return command;
}

LaunchOptions ranks(int count) {
  LaunchOptions options;
  options.num_processes = count;
  return options;
}

TEST(Watch, AJobThatEndsWellSaysNothing) {
  const Captured done = run_agent(fake("--steps 20"), ranks(3));
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.err, "");
}

TEST(Watch, ADeathIsToldWithTheLastCollective) {
  const testing::Stopwatch watch;
  const Captured done = run_agent(fake("--victim 2 --at 8 --do kill"), ranks(4));
  EXPECT_LT(watch.seconds(), watch.limit(3));
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_TRUE(contains(done.err, ") was killed by SIGKILL (seen ")) << done.err;
  EXPECT_TRUE(contains(done.err, "[agent] rank 2 (pid ")) << done.err;
  EXPECT_TRUE(contains(done.err,
                       "it was running: step 7; its last collective: all_reduce #6 of group 'world' (4 ranks, "
                       "1024 x float32, sum, tag 'bucket 3'), ended "))
      << done.err;
  EXPECT_TRUE(contains(done.err, "its last lines:\n[agent]   | begin ")) << done.err;
  EXPECT_EQ(pids_after(done.err, "[agent] rank ").size(), 1u) << done.err;
  for (const int pid : pids_after(done.out, "begin ")) EXPECT_FALSE(is_running(pid));
}

TEST(Watch, InnocentsThatEndSoonerAreNotNamed) {
  // The victim's peers see its state at once and exit; the victim exits 150 ms later.
  for (int i = 0; i < 5; ++i) {
    const Captured done = run_agent(fake("--victim 1 --at 3 --do fail"), ranks(4));
    EXPECT_EQ(done.exit_code, 1);
    EXPECT_TRUE(contains(done.err, "[agent] rank 1 (pid ")) << done.err;
    EXPECT_TRUE(contains(done.err, "[rank 1] step 3: the loss is not a number")) << done.err;
    EXPECT_EQ(pids_after(done.err, "[agent] rank ").size(), 1u) << done.err;
  }
}

TEST(Watch, ARankThatEndsWithCodeZeroAmidTheJobIsNamed) {
  const Captured done = run_agent(fake("--victim 1 --at 3 --do leave"), ranks(3));
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_TRUE(contains(done.err, "; it reports that a peer is gone: rank 1 (pid ")) << done.err;
  EXPECT_TRUE(contains(done.err, ") exited with code 0 in the middle of the job")) << done.err;
}

TEST(Watch, BadInputKeepsItsCodeAndItsTellerHoweverLateItIs) {
  // The others exit first, and the agent would end the rank that reports the error, on a busy machine before its
  // report.
  LaunchOptions options = ranks(3);
  options.max_restarts = 3;
  const Captured done = run_agent(fake("--victim 0 --at 3 --do refuse=1500"), options);
  EXPECT_EQ(done.exit_code, 2) << done.err;
  EXPECT_TRUE(contains(done.err, "[agent] rank 0 (pid ")) << done.err;
  EXPECT_TRUE(contains(done.err, "--train_file: there is no file text.txt")) << done.err;
  EXPECT_FALSE(contains(done.err, "restarting")) << done.err;
  EXPECT_EQ(pids_after(done.err, "[agent] rank ").size(), 1u) << done.err;
}

TEST(Watch, OneOfOurRanksThatStoppedAfterSavingLetsTheOthersSave) {
  LaunchOptions options = ranks(3);
  options.grace_seconds = 0.1;  // the grace after a failure must not apply
  const Captured done = run_agent(fake("--victim 0 --at 4 --do stopped"), options);
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_TRUE(contains(done.out, "[rank 1] saved")) << done.out << done.err;
  EXPECT_TRUE(contains(done.out, "[rank 2] saved")) << done.out << done.err;
}

TEST(Watch, ASegmentationFaultIsNamed) {
  const Captured done = run_agent(fake("--victim 0 --at 3 --do segv"), ranks(3));
  EXPECT_EQ(done.exit_code, 139);
  EXPECT_TRUE(contains(done.err, "[agent] rank 0 (pid ")) << done.err;
  EXPECT_TRUE(contains(done.err, "was killed by SIGSEGV")) << done.err;
}

/// A memory cgroup of 24 MB, if this user may create one.
class SmallMemory {
 public:
  SmallMemory() {
    for (const char* parent : {"/sys/fs/cgroup/memory", "/sys/fs/cgroup"}) {
      const std::string folder = concat(parent, "/tessera-test-", ::getpid());
      if (::mkdir(folder.c_str(), 0755) != 0) continue;
      for (const char* limit : {"/memory.limit_in_bytes", "/memory.max"}) {
        if (std::ofstream(folder + limit) << (24 << 20) << std::flush) path = folder;
      }
      if (!path.empty()) return;
      ::rmdir(folder.c_str());
    }
  }
  ~SmallMemory() {
    if (!path.empty()) eventually([&] { return ::rmdir(path.c_str()) == 0; });
  }
  std::string path;
};

TEST(Watch, AnOutOfMemoryKillIsRecognised) {
  const SmallMemory memory;
  if (memory.path.empty()) GTEST_SKIP() << "no memory cgroup can be made here";
  const Captured done = run_agent(shell(concat("if [ $RANK = 1 ]; then echo $$ > ", memory.path,
                                               "/cgroup.procs; sleep 1.3; exec tail /dev/zero; fi; sleep 600")),
                                  ranks(2));
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_TRUE(contains(done.err, "was killed by SIGKILL: the kernel ended it because its cgroup was out of memory ("))
      << done.err;
  EXPECT_TRUE(contains(done.err, "limit 24.0 MiB)")) << done.err;
}

TEST(Watch, AFrozenRankIsNamedAndTheJobEnds) {
  AgentUnderTest agent(fake("--victim 1 --at 5 --do stop"), ranks(3));
  ASSERT_TRUE(agent.wait_for("victim ", 1));
  const testing::Stopwatch watch;
  const Captured done = agent.finish();
  EXPECT_GT(watch.seconds(), 2);
  EXPECT_LT(watch.seconds(), watch.limit(4));  // named within 3 s, ended at once
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_TRUE(contains(done.err, "is frozen: no heartbeat for ")) << done.err;
  EXPECT_TRUE(contains(done.err, "process state T (stopped by a signal); ending the other ranks")) << done.err;
  for (const int pid : pids_after(done.out, "begin ")) EXPECT_FALSE(is_running(pid));
}

TEST(Watch, AFreezeMayOnlyBeReported) {
  LaunchOptions options = ranks(2);
  options.only_report = true;
  options.heartbeat_timeout = testing::patience(0.6);
  AgentUnderTest agent(fake("--victim 1 --at 5 --do stop --steps 300"), options);
  ASSERT_TRUE(agent.wait_for("victim ", 1));
  const int victim = pids_after(agent.out(), "victim ").at(0);
  EXPECT_TRUE(agent.wait_for_error("is frozen")) << agent.err();
  EXPECT_TRUE(is_running(victim));
  ::kill(victim, SIGCONT);
  const Captured done = agent.finish();
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "is frozen")) << done.err;
  EXPECT_TRUE(contains(done.err, "and continues")) << done.err;
}

TEST(Watch, APauseOfTwoSecondsIsTolerated) {
  LaunchOptions options = ranks(2);
  options.heartbeat_timeout = testing::patience(options.heartbeat_timeout);
  const Captured done = run_agent(fake("--victim 0 --at 5 --do stop2s --steps 30"), options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "[agent] rank 0 (pid ")) << done.err;
  EXPECT_TRUE(contains(done.err, "gave no heartbeat for ")) << done.err;
  EXPECT_TRUE(contains(done.err, "(process state T (stopped by a signal)) and continues")) << done.err;
}

TEST(Watch, ARankThatComputesForEverIsToldAndNotEnded) {
  LaunchOptions options = ranks(3);
  options.hang_timeout = testing::patience(1);
  AgentUnderTest agent(fake("--victim 1 --at 5 --do spin"), options);
  ASSERT_TRUE(agent.wait_for("victim ", 1));
  EXPECT_TRUE(agent.wait_for_error(" computes (")) << agent.err();
  EXPECT_TRUE(agent.wait_for_error("step 4, forward; ranks 0, 2 wait in a collective; no rank is terminated for this"))
      << agent.err();
  std::this_thread::sleep_for(std::chrono::duration<double>(2.5 * options.hang_timeout));  // a sleeper would be ended
  EXPECT_TRUE(is_running(pids_after(agent.out(), "victim ").at(0)));
  agent.signal(SIGTERM);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  agent.signal(SIGTERM);
  const Captured done = agent.finish();
  EXPECT_FALSE(contains(done.err, "hangs")) << done.err;
}

/// A process that holds a file's lock until released. It is a separate process because agents forked by this one would
/// inherit its open files, and could have smaller pids.
class LockHolder {
 public:
  explicit LockHolder(const std::string& path) {
    int ready[2] = {-1, -1};
    if (::pipe2(ready, O_CLOEXEC) != 0) return;
    const UniqueFd read(ready[0]);
    UniqueFd write(ready[1]);
    pid_ = ::fork();
    if (pid_ == 0) {
      const int file = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
      struct flock lock{};
      lock.l_type = F_WRLCK;
      if (::fcntl(file, F_OFD_SETLK, &lock) != 0 || ::write(write.get(), "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    write.reset();
    char byte = 0;
    holds_ = ::read(read.get(), &byte, 1) == 1;
  }
  ~LockHolder() { release(); }
  LockHolder(const LockHolder&) = delete;
  LockHolder& operator=(const LockHolder&) = delete;
  bool holds() const { return holds_; }
  pid_t pid() const { return pid_; }
  void release() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(std::exchange(pid_, 0), nullptr, 0);
  }

 private:
  pid_t pid_ = 0;
  bool holds_ = false;
};

TEST(Watch, ARankThatWaitsForALockOfAnotherProgramIsToldWithIt) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "lock");
  write_file_atomically(path, "");
  LockHolder holder(path);
  ASSERT_TRUE(holder.holds());
  LaunchOptions options = ranks(2);
  options.hang_timeout = 600;
  AgentUnderTest agent(fake(concat("--victim 1 --at 5 --steps 20 --do lock=", path)), options);
  EXPECT_TRUE(agent.wait_for_error(concat("making tokens (", path,
                                          ", which it has open, is locked by another program: "
                                          "pid ",
                                          holder.pid(), " (")))
      << agent.err();
  holder.release();
  EXPECT_EQ(agent.finish().exit_code, 0) << "it goes on once it has the lock";
}

TEST(Watch, ARankThatIsStoppedBeforeItComesIsNamedAndEnded) {
  const Captured done = run_agent(fake("--victim 1 --do stopearly"), ranks(3));
  EXPECT_EQ(done.exit_code, 1) << done.err;
  EXPECT_FALSE(done.timed_out);
  EXPECT_TRUE(contains(done.err, " s before it reached tessera::init(), process state T")) << done.err;
  EXPECT_TRUE(contains(done.err, "[agent] rank 1 (pid ")) << done.err;
}

TEST(Watch, ARankThatIsStoppedAfterItHasLeftIsNamedAndEndedAndNothingBeginsAgain) {
  LaunchOptions options = ranks(3);
  options.max_restarts = 2;
  const Captured done = run_agent(fake("--victim 1 --steps 3 --do stopleft"), options);
  EXPECT_EQ(done.exit_code, 1) << done.err;
  EXPECT_FALSE(done.timed_out);
  EXPECT_TRUE(contains(done.err, " s after it left the job, process state T")) << done.err;
  EXPECT_FALSE(contains(done.err, "restarting")) << done.err;
}

TEST(Watch, ARankThatIsStoppedWhileTheJobIsAskedToEndIsNamedAndEnded) {
  LaunchOptions options = ranks(3);
  options.stop_seconds = 300;
  options.max_restarts = 1;
  AgentUnderTest agent(fake("--victim 1 --at 5 --do stop"), options);
  ASSERT_TRUE(agent.wait_for("victim ", 1));
  agent.signal(SIGTERM);
  const Captured done = agent.finish();
  EXPECT_FALSE(done.timed_out);
  EXPECT_TRUE(contains(done.err, "SIGTERM received")) << done.err;
  EXPECT_TRUE(contains(done.err, "is frozen: no heartbeat for ")) << done.err;
  EXPECT_FALSE(contains(done.err, "restarting")) << done.err;
}

TEST(Watch, ARankThatSleepsForEverIsNamedWithStacks) {
  LaunchOptions options = ranks(3);
  options.hang_timeout = testing::patience(1);
  const Captured done = run_agent(fake("--victim 1 --at 5 --do sleep"), options);
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_TRUE(contains(done.err, "[agent] no progress for ")) << done.err;
  EXPECT_TRUE(contains(done.err,
                       ") has not reached all_reduce #4 of group 'world' (3 ranks, 1024 x float32, sum, tag "
                       "'bucket 3'), where ranks 0, 2 wait for it; it is outside of any collective, step 4, "
                       "forward"))
      << done.err;
  EXPECT_TRUE(contains(done.err, "[agent]   rank 1:\n[agent]   thread ")) << done.err;
  if (run_and_capture(shell("command -v gdb")).exit_code == 0) {
    EXPECT_TRUE(contains(done.err, " act (") || contains(done.err, "::act(")) << done.err;
  }
}

TEST(Watch, ADeadlockIsToldInTheLogFolder) {
  const TemporaryFolder folder;
  LaunchOptions options = ranks(3);
  options.hang_timeout = testing::patience(1);
  options.log_dir = path_join(folder.path(), "logs");
  const Captured done = run_agent(fake("--victim 2 --at 5 --do skip"), options);
  EXPECT_EQ(done.exit_code, 1);
  EXPECT_TRUE(contains(done.err, "the ranks do not call the same collectives")) << done.err;
  const std::string stacks = read_file(path_join(options.log_dir, "stacks-0.txt"));
  for (const char* rank : {"rank 0:", "rank 1:", "rank 2:"}) EXPECT_TRUE(contains(stacks, rank)) << stacks;
  EXPECT_TRUE(contains(read_file(path_join(options.log_dir, "agent.log")), "the job hangs")) << done.err;
}

TEST(Watch, SavingIsNoHang) {
  LaunchOptions options = ranks(2);
  options.hang_timeout = testing::patience(0.5);
  AgentUnderTest agent(fake("--victim 0 --at 5 --do save10s"), options);
  ASSERT_TRUE(agent.wait_for("victim ", 1));
  std::this_thread::sleep_for(std::chrono::duration<double>(2 * options.hang_timeout));
  agent.signal(SIGTERM);
  agent.signal(SIGINT);
  std::this_thread::sleep_for(std::chrono::milliseconds(600));
  agent.signal(SIGTERM);
  EXPECT_FALSE(contains(agent.finish().err, "hangs"));
}

TEST(Watch, ThePeersAreToldThroughTheBoard) {
  // The ranks ignore SIGTERM, as a trainer in the middle of a step does, and exit by themselves before SIGKILL.
  LaunchOptions options = ranks(4);
  options.grace_seconds = 600;
  const testing::Stopwatch watch;
  const Captured done = run_agent(fake("--victim 0 --at 5 --do exit"), options);
  EXPECT_LT(watch.seconds(), watch.limit(5));
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_TRUE(contains(done.err, "] the launcher ends the job")) << done.err;
}

TEST(Restart, TheWorldBeginsAgainWithANewGeneration) {
  LaunchOptions options = ranks(3);
  options.max_restarts = 2;
  const Captured done = run_agent(fake("--victim 1 --at 5 --do kill --steps 20"), options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "restarting all ranks (restart 1 of 2)")) << done.err;
  EXPECT_FALSE(contains(done.err, "restart 2 of 2")) << done.err;
  EXPECT_EQ(pids_after(done.out, "done generation ").size(), 3u) << done.out;
  EXPECT_EQ(pids_after(done.out, "done generation "), (std::vector<int>{1, 1, 1}));
}

TEST(Restart, StartsThatFailAtOnceArePausedLongerAndLonger) {
  LaunchOptions options = ranks(2);
  options.max_restarts = 3;
  options.restart_pause = 0.05;
  const testing::Stopwatch watch;
  const Captured done = run_agent(shell("exit 7"), options);
  EXPECT_GT(watch.seconds(), 0.35);
  EXPECT_EQ(done.exit_code, 7);
  for (const char* text : {"(restart 1 of 3) in 0.05 s: the previous start failed before its first step",
                           "(restart 2 of 3) in 0.1 s", "(restart 3 of 3) in 0.2 s"})
    EXPECT_TRUE(contains(done.err, text)) << done.err;
}

TEST(Restart, AJobThatGotOnStartsAgainAtOnce) {
  LaunchOptions options = ranks(2);
  options.max_restarts = 2;
  options.restart_pause = 900;
  const Captured done = run_agent(fake("--victim 1 --at 3 --do exit --generation -1"), options);
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_FALSE(done.timed_out);
  EXPECT_TRUE(contains(done.err, "(restart 2 of 2)\n")) << done.err;
}

TEST(Restart, ASignalEndsAPause) {
  LaunchOptions options = ranks(1);
  options.max_restarts = 2;
  options.restart_pause = 900;
  options.restart_pause_most = 900;
  AgentUnderTest agent(shell("exit 7"), options);
  ASSERT_TRUE(agent.wait_for_error("(restart 1 of 2) in 900 s")) << agent.err();
  agent.signal(SIGTERM);
  const Captured done = agent.finish();
  EXPECT_FALSE(done.timed_out);
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_TRUE(contains(done.err, "SIGTERM received; not restarting")) << done.err;
}

TEST(Restart, TheNumberOfRestartsIsLimited) {
  LaunchOptions options = ranks(2);
  options.max_restarts = 2;
  const Captured done = run_agent(fake("--victim 1 --at 2 --do exit --generation -1"), options);
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_TRUE(contains(done.err, "restart 2 of 2")) << done.err;
  EXPECT_EQ(pids_after(done.out, "victim ").size(), 3u) << done.out;
}

TEST(Restart, BadInputAndStopsAreNotRepeated) {
  LaunchOptions options = ranks(2);
  options.max_restarts = 3;
  for (const int code : {2, 130}) {
    const Captured done =
        run_agent(shell(concat("echo begin; if [ $RANK = 1 ]; then exit ", code, "; fi; sleep 600")), options);
    EXPECT_EQ(done.exit_code, code);
    EXPECT_FALSE(contains(done.err, "restarting")) << done.err;
  }
  AgentUnderTest agent(shell("trap 'exit 9' TERM; echo ready; while :; do sleep 0.02; done"), options);
  ASSERT_TRUE(agent.wait_for("ready", 2));
  agent.signal(SIGTERM);
  const Captured done = agent.finish();
  EXPECT_EQ(done.exit_code, 9);
  EXPECT_FALSE(contains(done.err, "restarting")) << done.err;
}

TEST(Restart, EveryGenerationSeesItsNumberAndTheSameJob) {
  LaunchOptions options = ranks(2);
  options.max_restarts = 1;
  const Captured done =
      run_agent(shell("echo generation $TESSERA_GENERATION restarts $TORCHELASTIC_RESTART_COUNT job $TESSERA_JOB.; "
                      "[ $TESSERA_GENERATION = 1 ] || exit 1"),
                options);
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(pids_after(done.out, "generation 1 restarts ").size(), 2u) << done.out;
  const auto at = done.out.find(" job ") + 5;
  const std::string job = done.out.substr(at, done.out.find('.', at) - at);
  EXPECT_EQ(job.size(), 16u);
  int seen = 0;
  for (auto found = done.out.find(job); found != std::string::npos; found = done.out.find(job, found + 1)) ++seen;
  EXPECT_GE(seen, 3) << done.out;
}

TEST(Restart, AnOldGenerationIsGoneBeforeTheNewOneBegins) {
  // The dead rank's child ignores SIGTERM; it must be gone when the next generation's ranks look for it.
  LaunchOptions options = ranks(2);
  options.max_restarts = 1;
  const TemporaryFolder folder;
  const Captured done = run_agent(
      shell(concat(
          "cd ", folder.path(),
          "; if [ $TESSERA_GENERATION = 0 ]; then sh -c 'trap \"\" TERM; sleep 600 & echo $! > child.'$RANK'; wait' & "
          "sleep 0.3; [ $RANK = 0 ] && kill -9 $$; sleep 600; fi; "
          "for f in child.*; do grep -qs 'State:.[^ZX]' /proc/$(cat $f)/status && echo still there; done; exit 0")),
      options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_FALSE(contains(done.out, "still there")) << done.out;
}

/// One of two agents of a job, both on this host.
LaunchOptions machine(int number, int port) {
  LaunchOptions options = ranks(2);
  options.num_machines = 2;
  options.machine_rank = number;
  options.master_port = port;
  options.secret = Secret{1, 2, 3};
  options.host_label = concat("node", number);
  options.max_restarts = 1;
  return options;
}

TEST(TwoHosts, AFailureOnOneRestartsBoth) {
  const int port = choose_port("127.0.0.1");
  // Ranks of different hosts do not see each other's boards, so these only wait; rank 3 dies in generation 0.
  const Strings command = shell(
      "echo rank $RANK of $WORLD_SIZE local $LOCAL_RANK of $LOCAL_WORLD_SIZE group $GROUP_RANK generation "
      "$TESSERA_GENERATION; "
      "[ $TESSERA_GENERATION = 1 ] && exit 0; [ $RANK = 3 ] && sleep 0.5 && kill -9 $$; sleep 600");
  AgentUnderTest one(command, machine(0, port)), two(command, machine(1, port));
  const Captured second = two.finish();
  const Captured first = one.finish();
  EXPECT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(second.exit_code, 0) << second.err;
  EXPECT_TRUE(contains(first.out, "[node0 rank 1] rank 1 of 4 local 1 of 2 group 0 generation 1")) << first.out;
  EXPECT_TRUE(contains(second.out, "[node1 rank 3] rank 3 of 4 local 1 of 2 group 1 generation 1")) << second.out;
  EXPECT_TRUE(contains(first.err, "rank 3 (pid ")) << first.err;
  EXPECT_TRUE(contains(first.err, "was killed by SIGKILL")) << first.err;
  EXPECT_TRUE(contains(first.err, "restarting all ranks (restart 1 of 1)")) << first.err;
}

TEST(TwoHosts, ARequestToStopReachesBoth) {
  const int port = choose_port("127.0.0.1");
  const Strings command = shell("trap 'exit 3' TERM; echo ready; while :; do sleep 0.02; done");
  AgentUnderTest one(command, machine(0, port)), two(command, machine(1, port));
  ASSERT_TRUE(one.wait_for("ready", 2));
  ASSERT_TRUE(two.wait_for("ready", 2));
  two.signal(SIGTERM);
  EXPECT_EQ(two.finish().exit_code, 3);
  EXPECT_EQ(one.finish().exit_code, 3);
}

}  // namespace
}  // namespace tessera::launch
