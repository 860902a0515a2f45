#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/launch/agent/ports.h>
#include <algorithm>
#include <sstream>

#include <tests/stopwatch.h>
#include "agent_under_test.h"

namespace tessera::launch {
namespace {

LaunchOptions ranks(int count) {
  LaunchOptions options;
  options.num_processes = count;
  return options;
}

Strings sorted_lines(const std::string& text) {
  Strings lines = split(text, '\n');
  if (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::sort(lines.begin(), lines.end());
  return lines;
}

TEST(Launcher, EachRankSeesItsPlace) {
  LaunchOptions options = ranks(3);
  options.master_port = choose_port("127.0.0.1");
  options.threads_per_process = 5;
  const Captured done =
      run_agent(shell("echo $RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $NODE_RANK $MASTER_ADDR "
                      "$MASTER_PORT $OMP_NUM_THREADS $TESSERA_LAUNCHER"),
                options);
  EXPECT_EQ(done.exit_code, 0) << done.err;
  EXPECT_EQ(done.err, "");
  Strings expected;
  for (int rank = 0; rank < 3; ++rank) {
    expected.push_back(
        concat("[rank ", rank, "] ", rank, " ", rank, " 3 3 0 0 127.0.0.1 ", options.master_port, " 5 1"));
  }
  EXPECT_EQ(sorted_lines(done.out), expected);
}

TEST(Launcher, APortIsChosenAndThreadsAreShared) {
  ::unsetenv("OMP_NUM_THREADS");
  const Captured done = run_agent(shell("echo port $MASTER_PORT threads $OMP_NUM_THREADS"), ranks(2));
  const auto ports = pids_after(done.out, "port ");
  ASSERT_EQ(ports.size(), 2u) << done.out;
  EXPECT_EQ(ports[0], ports[1]);
  EXPECT_GT(ports[0], 1023);
  EXPECT_GE(pids_after(done.out, "threads ").at(0), 1);
  ::setenv("OMP_NUM_THREADS", "7", 1);
  EXPECT_TRUE(contains(run_agent(shell("echo threads $OMP_NUM_THREADS"), ranks(1)).out, "threads 7"));
  ::unsetenv("OMP_NUM_THREADS");
}

TEST(Launcher, VariablesOfAnAgentAroundUsAreNotPassedOn) {
  ::setenv("TORCHELASTIC_USE_AGENT_STORE", "True", 1);
  const Captured done = run_agent(shell("echo ${TORCHELASTIC_USE_AGENT_STORE-no}"), ranks(1));
  ::unsetenv("TORCHELASTIC_USE_AGENT_STORE");
  EXPECT_EQ(done.out, "[rank 0] no\n");
}

TEST(Launcher, OutputAndErrorsArePrefixedLineByLine) {
  const Captured done = run_agent(shell("printf 'one\\n\\ntwo'; printf 'bad' >&2"), ranks(1));
  EXPECT_EQ(done.out, "[rank 0] one\n[rank 0] \n[rank 0] two\n");
  EXPECT_EQ(done.err, "[rank 0] bad\n");
}

TEST(Launcher, LinesOfSeveralRanksNeverMix) {
  // Each line is written in two pieces, with the other ranks writing in between.
  const Captured done = run_agent(
      shell(
          "i=0; while [ $i -lt 200 ]; do printf \"a$RANK$RANK$RANK\"; printf \"$RANK$RANK$RANK\\n\"; i=$((i+1)); done"),
      ranks(4));
  EXPECT_EQ(done.exit_code, 0);
  const Strings lines = sorted_lines(done.out);
  ASSERT_EQ(lines.size(), 800u);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const std::string r = std::to_string(i / 200);
    EXPECT_EQ(lines[i], "[rank " + r + "] a" + r + r + r + r + r + r);
  }
}

TEST(Launcher, RankZeroMayWriteStraightThrough) {
  LaunchOptions options = ranks(2);
  options.prefix_rank0 = false;
  EXPECT_EQ(sorted_lines(run_agent(shell("echo I am $RANK"), options).out), (Strings{"I am 0", "[rank 1] I am 1"}));
  options.prefix_output = false;
  EXPECT_EQ(sorted_lines(run_agent(shell("echo I am $RANK"), options).out), (Strings{"I am 0", "I am 1"}));
}

TEST(Launcher, NobodyReadsAndTheRanksGoOn) {
  for (const bool prefix : {true, false}) {
    const TemporaryFolder folder;
    const std::string done_file = path_join(folder.path(), "done");
    LaunchOptions options = ranks(1);
    options.prefix_rank0 = prefix;
    AgentUnderTest agent(shell(concat("yes 'a line of the rank' | head -n 500000; touch ", done_file)), options);
    EXPECT_TRUE(eventually([&] { return path_exists(done_file); }));  // 9 MB written, none of it read
    const Captured done = agent.finish();
    EXPECT_EQ(done.exit_code, 0) << done.err;
    EXPECT_TRUE(contains(done.out, "[agent] nobody read this output for ")) << done.err;
    EXPECT_TRUE(contains(done.out, " lines of the ranks were dropped (--log_dir DIR keeps all)\n"));
  }
}

TEST(Launcher, MuchOutputArrivesWhole) {
  const Captured done = run_agent(shell("head -c 3000000 /dev/zero | tr '\\0' 'x' | fold -w 100; echo"), ranks(2));
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), 'x'), 6'000'000);
}

TEST(Launcher, TheFirstFailureIsNamedAndTheOthersEnd) {
  const testing::Stopwatch watch;
  const Captured done =
      run_agent(shell("if [ $RANK = 1 ]; then echo about to fail >&2; exit 7; fi; sleep 600"), ranks(3));
  EXPECT_LT(watch.seconds(), watch.limit(2.5));
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_TRUE(contains(done.err, "[rank 1] about to fail\n[agent] rank 1 (pid ")) << done.err;
  EXPECT_TRUE(contains(done.err, ") ended with exit code 7; ending the other ranks\n")) << done.err;
  EXPECT_EQ(pids_after(done.err, "pid ").size(), 1u) << done.err;  // the ranks that were terminated are not reported as
                                                                   // failures
}

TEST(Launcher, RanksThatIgnoreSigtermAreKilledInTime) {
  AgentUnderTest agent(shell("trap '' TERM; echo ready; if [ $RANK = 0 ]; then sleep 0.3; exit 5; fi; "
                             "while :; do sleep 0.05; done"),
                       ranks(3));
  ASSERT_TRUE(agent.wait_for("ready", 3));
  const testing::Stopwatch watch;
  const Captured done = agent.finish();
  EXPECT_LT(watch.seconds(), watch.limit(5));  // after a grace of two seconds
  EXPECT_EQ(done.exit_code, 5);
}

TEST(Launcher, AKilledRankIsNamedWithItsSignal) {
  AgentUnderTest agent(shell("echo pid $$; sleep 600"), ranks(3));
  ASSERT_TRUE(agent.wait_for("pid ", 3));
  const int victim = pids_after(agent.out(), "[rank 2] pid ").at(0);
  const testing::Stopwatch watch;
  ::kill(victim, SIGKILL);
  const Captured done = agent.finish();
  EXPECT_LT(watch.seconds(), watch.limit(2));
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_EQ(done.err, concat("[agent] rank 2 (pid ", victim, ") was killed by SIGKILL; ending the other ranks\n",
                             "[agent]   its last line:\n[agent]   | pid ", victim, "\n"));
}

TEST(Launcher, ASignalIsTheCauseWhenSeveralEndTogether) {
  AgentUnderTest agent(shell("trap 'exit 1' USR1; echo pid $$; while :; do sleep 0.02; done"), ranks(3));
  ASSERT_TRUE(agent.wait_for("pid ", 3));
  const auto pids = pids_after(agent.out(), "pid ");
  const int victim = pids_after(agent.out(), "[rank 2] pid ").at(0);
  agent.signal(SIGSTOP);  // the agent is stopped while one rank is killed and the others fail as a consequence
  for (int pid : pids) ::kill(pid, pid == victim ? SIGKILL : SIGUSR1);  // not SIGHUP: nohup's children cannot trap it
  ASSERT_TRUE(eventually([&] { return std::none_of(pids.begin(), pids.end(), is_running); }));
  agent.signal(SIGCONT);
  const Captured done = agent.finish();
  EXPECT_EQ(done.exit_code, 137);
  EXPECT_TRUE(done.err.starts_with(concat("[agent] rank 2 (pid ", victim, ") was killed by SIGKILL\n"))) << done.err;
  EXPECT_EQ(pids_after(done.err, "[agent] rank ").size(), 1u) << done.err;
}

TEST(Launcher, SigintIsForwardedAndGives130) {
  AgentUnderTest agent(shell("trap 'echo interrupted; exit 130' INT; echo ready; while :; do sleep 0.02; done"),
                       ranks(2));
  ASSERT_TRUE(agent.wait_for("ready", 2));
  agent.signal(SIGINT);
  const Captured done = agent.finish();
  EXPECT_EQ(done.exit_code, 130);
  EXPECT_EQ(pids_after(done.out + " ", "[rank ").size(), 4u) << done.out;
  EXPECT_TRUE(contains(done.out, "[rank 0] interrupted")) << done.out;
  EXPECT_TRUE(contains(done.out, "[rank 1] interrupted")) << done.out;
  EXPECT_TRUE(contains(done.err, "SIGINT received; asking 2 ranks to stop")) << done.err;
}

TEST(Launcher, SigtermLeavesTimeToSaveAndGivesTheRanksCode) {
  LaunchOptions options = ranks(2);
  options.grace_seconds = 0.2;  // the grace after a failure must not apply to a requested stop
  AgentUnderTest agent(shell("trap 'sleep 0.7; echo saved; exit 3' TERM; echo ready; while :; do sleep 0.02; done"),
                       options);
  ASSERT_TRUE(agent.wait_for("ready", 2));
  agent.signal(SIGTERM);
  agent.signal(SIGTERM);  // as timeout(1) does: still the first request
  const Captured done = agent.finish();
  EXPECT_EQ(done.exit_code, 3);
  EXPECT_TRUE(contains(done.out, "[rank 0] saved")) << done.out;
  EXPECT_TRUE(contains(done.out, "[rank 1] saved")) << done.out;
}

TEST(Launcher, ASecondSignalKills) {
  AgentUnderTest agent(shell("trap '' INT TERM; echo ready; while :; do sleep 0.05; done"), ranks(2));
  ASSERT_TRUE(agent.wait_for("ready", 2));
  agent.signal(SIGINT);
  ASSERT_TRUE(agent.wait_for_error("asking 2 ranks to stop")) << agent.err();
  std::this_thread::sleep_for(std::chrono::duration<double>(testing::patience(0.6)));  // earlier: one request
  const testing::Stopwatch watch;
  agent.signal(SIGINT);
  const Captured done = agent.finish();
  EXPECT_LT(watch.seconds(), watch.limit(2));
  EXPECT_EQ(done.exit_code, 130);
  EXPECT_TRUE(contains(done.err, "received again; killing the ranks")) << done.err;
}

TEST(Launcher, StopSecondsLimitTheWait) {
  LaunchOptions options = ranks(1);
  options.stop_seconds = 0.3;
  AgentUnderTest agent(shell("trap '' TERM; echo ready; while :; do sleep 0.05; done"), options);
  ASSERT_TRUE(agent.wait_for("ready", 1));
  const testing::Stopwatch watch;
  agent.signal(SIGTERM);
  EXPECT_EQ(agent.finish().exit_code, 137);
  EXPECT_LT(watch.seconds(), watch.limit(2));
}

/// All processes that the ranks started, by the pids they printed.
std::vector<int> family(const std::string& out) {
  auto all = pids_after(out, "self ");
  for (int pid : pids_after(out, "child ")) all.push_back(pid);
  return all;
}
const char* const parent_and_child = "sleep 600 & echo self $$ child $!; wait";

TEST(Launcher, NothingSurvivesAKilledAgent) {
  AgentUnderTest agent(shell(parent_and_child), ranks(2));
  ASSERT_TRUE(agent.wait_for("child ", 2));
  const auto pids = family(agent.out());
  ASSERT_EQ(pids.size(), 4u);
  for (int pid : pids) EXPECT_TRUE(is_running(pid));
  agent.signal(SIGKILL);
  EXPECT_TRUE(eventually([&] { return std::none_of(pids.begin(), pids.end(), is_running); }));
  EXPECT_EQ(agent.finish().exit_code, 137);
}

TEST(Launcher, NothingSurvivesAFailure) {
  AgentUnderTest agent(
      shell("trap '' TERM; sleep 600 & echo self $$ child $!; if [ $RANK = 1 ]; then exit 4; fi; wait"), ranks(2));
  ASSERT_TRUE(agent.wait_for("child ", 2));
  const Captured done = agent.finish();
  EXPECT_EQ(done.exit_code, 4);
  for (int pid : family(done.out)) EXPECT_FALSE(is_running(pid));
}

TEST(Launcher, ARankTakesWhatItStartedWithIt) {
  const Captured done = run_agent(shell("sleep 600 & echo self $$ child $!; exit 0"), ranks(2));
  EXPECT_EQ(done.exit_code, 0);
  const auto pids = family(done.out);
  ASSERT_EQ(pids.size(), 4u);
  for (int pid : pids) EXPECT_FALSE(is_running(pid));
}

TEST(Launcher, WhatMovedToASessionOfItsOwnIsEnded) {
  // Two levels of processes: when a session leader is killed, its child is reparented to the agent.
  const std::string daemon = "setsid sh -c 'sleep 600 & echo child $!; echo child $$; wait' & ";
  for (const char* ending : {"exit 0", "exit 4"}) {
    LaunchOptions options = ranks(2);
    options.grace_seconds = 0.5;
    AgentUnderTest agent(shell(daemon + "while [ ! -e go ]; do sleep 0.05; done; " + ending), options);
    ASSERT_TRUE(agent.wait_for("child ", 4)) << agent.err();
    write_file_atomically("go", "");
    const Captured done = agent.finish();
    EXPECT_FALSE(done.timed_out) << "they hold the agent's output";
    const auto pids = pids_after(done.out, "child ");
    ASSERT_EQ(pids.size(), 4u) << done.out;
    for (int pid : pids) EXPECT_FALSE(is_running(pid));
    EXPECT_TRUE(contains(done.err, "[agent] 4 processes that ranks had left running in their own sessions were killed"))
        << done.err;
    for (const int pid : pids) ::kill(pid, SIGKILL);
    ::unlink("go");
  }
}

TEST(Launcher, WhatEndsInASessionOfItsOwnIsCollectedWhileTheJobRuns) {
  const std::string zombies = "awk -v p=$PPID '$4 == p && $3 == \"Z\"' /proc/[0-9]*/stat 2>/dev/null | wc -l";
  const Captured done =
      run_agent(shell(concat("for i in 1 2 3; do (setsid true &); done; sleep 0.5; for i in $(seq 400); do left=$(",
                             zombies, "); [ $left = 0 ] && break; sleep 0.05; done; echo left $left")),
                ranks(1));
  EXPECT_TRUE(contains(done.out, "left 0")) << done.out << done.err;
}

TEST(Launcher, TheLastLinesWaitForAReaderWhoComesLate) {
  LaunchOptions options = ranks(1);
  options.prefix_rank0 = false;
  AgentUnderTest agent(shell("yes line | head -n 60000; echo reason; exit 7"), options);
  std::this_thread::sleep_for(std::chrono::seconds(6));
  const Captured done = agent.finish();
  EXPECT_EQ(done.exit_code, 7);
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 60001) << done.out.substr(done.out.size() - 99);
}

TEST(Launcher, SomethingLeftBehindThatNeverStopsWritingIsEnded) {
  const testing::Stopwatch watch;
  const Captured done = run_agent(shell("trap '' TERM; yes & echo done; exit 0"), ranks(1));
  EXPECT_LT(watch.seconds(), watch.limit(3));
  EXPECT_EQ(done.exit_code, 0);
  EXPECT_TRUE(contains(done.out, "[rank 0] done\n"));
}

TEST(Launcher, AMissingProgramIsAnInputError) {
  const Captured done = run_agent({"no-such-program-anywhere"}, ranks(2));
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_TRUE(contains(done.err, "cannot start 'no-such-program-anywhere': no such program in PATH")) << done.err;
  EXPECT_EQ(run_agent({}, ranks(1)).exit_code, 2);
}

TEST(Launcher, ImpossibleNumbersAreInputErrors) {
  EXPECT_EQ(run_agent({"true"}, ranks(0)).exit_code, 2);
  EXPECT_EQ(run_agent({"true"}, ranks(-3)).exit_code, 2);
  EXPECT_TRUE(contains(run_agent({"true"}, ranks(1'000'000)).err, "num_processes is 1000000")) << "names the number";
}

TEST(Launcher, TooFewOpenFilesIsAnInputErrorBeforeAnythingStarts) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{20, 20};
    ::setrlimit(RLIMIT_NOFILE, &limit);
    int code = 99;
    try {
      code = run(shell("sleep 600"), ranks(3));
    } catch (const InputError& error) {
      code = contains(error.what(), "3 processes need about 76 open files in the agent, but the limit is 20") ? 2 : 98;
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(exit_code_of(status), 2);
}

TEST(Launcher, RanksThatStartedEndWhenALaterOneCannotStart) {
  const TemporaryFolder folder;
  const std::string program = path_join(folder.path(), "once");
  // The first rank that runs removes the program; starting 100 ranks takes longer than that. A rank whose program
  // vanished during its start fails by itself instead; then the others must also end.
  write_file_atomically(
      program, concat("#!/bin/sh\nrm -f ", program, "\necho $$ > ", folder.path(), "/pid.$RANK\nexec sleep 600\n"));
  ASSERT_EQ(run_and_capture({"chmod", "+x", program}).exit_code, 0);
  const testing::Stopwatch watch;
  const Captured done = run_agent({program}, ranks(100));
  EXPECT_LT(watch.seconds(), watch.limit(10));
  EXPECT_NE(done.exit_code, 0);
  EXPECT_TRUE(contains(done.err, " of 100: cannot start '" + program) || contains(done.err, "ending the other ranks"))
      << done.err;
  for (const std::string& name : list_folder(folder.path())) {
    const std::string text = trim(read_file(path_join(folder.path(), name)));
    if (!text.empty()) {
      EXPECT_FALSE(is_running(std::stoi(text))) << name;
    }
  }
}

TEST(Launcher, APortInUseIsAnInputErrorBeforeAnythingStarts) {
  const BoundSocket taken = listen_on("127.0.0.1", 0);
  LaunchOptions options = ranks(2);
  options.master_port = taken.port;
  const Captured done = run_agent(shell("echo started"), options);
  EXPECT_EQ(done.exit_code, 2);
  EXPECT_EQ(done.out, "");
  EXPECT_TRUE(contains(done.err, concat("rendezvous port ", taken.port, " on 127.0.0.1: the port is in use")))
      << done.err;
}

TEST(Launcher, StandardInputIsEmpty) { EXPECT_EQ(run_agent(shell("wc -c"), ranks(1)).out, "[rank 0] 0\n"); }

TEST(Launcher, SignalSettingsOfTheCallerDoNotReachTheRanks) {
  ::signal(SIGINT, SIG_IGN);  // as for a shell's background job
  // A shell that is about to start a command when the signal arrives waits for that command, so use exec.
  AgentUnderTest agent(shell("grep -E 'Sig(Blk|Ign)' /proc/self/status; echo ready; exec sleep 600"), ranks(1));
  ::signal(SIGINT, SIG_DFL);
  ASSERT_TRUE(agent.wait_for("ready", 1));
  EXPECT_TRUE(contains(agent.out(), "SigBlk:\t0000000000000000")) << agent.out();
  agent.signal(SIGINT);
  EXPECT_EQ(agent.finish().exit_code, 130);
}

}  // namespace
}  // namespace tessera::launch
