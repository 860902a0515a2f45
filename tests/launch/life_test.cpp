#include <tessera/launch/watch/life.h>

#include <gtest/gtest.h>

#include <tessera/base/text.h>

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <thread>

namespace tessera::launch {
namespace {

constexpr std::int64_t second = 1'000'000'000;

/// Four ranks on a board, a clock and a /proc of our own. Hearts beat every look unless told otherwise.
class Job {
 public:
  explicit Job(const LifeLimits& limits = {})
      : board(Board::create(4, 0, 4, "test")), watch(limits, [this](pid_t pid) { return read(pid); }) {
    for (int i = 0; i < 4; ++i) {
      RankSlot& slot = board.slot(i);
      slot.generation = 3;
      slot.heartbeat_ns = slot.progress_ns = now;
      slot.state = RankState::running;
      slot.p99_step_ns = second / 10;
      watched.push_back({i, i, 100 + i});
      processes[100 + i] = {'S', false, 0};
    }
  }

  /// Lets time pass in steps of 0.1 s; returns what was found.
  std::vector<LifeFinding> pass(double seconds, const std::vector<int>& silent = {}, bool progress = true) {
    std::vector<LifeFinding> all;
    for (const auto end = now + static_cast<std::int64_t>(seconds * 1e9); now < end;) {
      now += second / 10;
      for (int i = 0; i < 4; ++i) {
        if (std::find(silent.begin(), silent.end(), i) != silent.end()) continue;
        board.slot(i).heartbeat_ns = now;
        if (progress) board.slot(i).progress_ns = now;
      }
      for (ProcStatus* busy : busy_) busy->cpu_ticks += 10;
      for (ProcStatus* starved : starved_) starved->cpu_wait_ns += second / 10;
      for (LifeFinding& finding : watch.look(board, 3, watched, now)) all.push_back(std::move(finding));
    }
    return all;
  }

  void compute(int rank) { busy_.push_back(&processes[100 + rank]); }
  void wait_for_cpu(int rank) { starved_.push_back(&processes[100 + rank]); }
  ProcStatus& process(int rank) { return processes[100 + rank]; }

  std::int64_t now = 1000 * second;
  Board board;
  std::vector<WatchedRank> watched;
  std::map<pid_t, ProcStatus> processes;
  LifeWatch watch;

 private:
  std::optional<ProcStatus> read(pid_t pid) { return processes.at(pid); }
  std::vector<ProcStatus*> busy_, starved_;
};

TEST(LifeWatch, AllIsWellWhileHeartsBeatAndStepsEnd) { EXPECT_TRUE(Job().pass(100).empty()); }

TEST(LifeWatch, AStoppedRankIsFrozenWithinThreeSeconds) {
  Job job;
  job.pass(5);
  job.process(2).state = 'T';
  const auto early = job.pass(2.4, {2});
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].kind, LifeFinding::stopped);
  EXPECT_EQ(early[0].text,
            "rank 2 (pid 102) stands still: no heartbeat for 1 s, process state T (stopped by a signal); the job ends "
            "after 2.5 s (--heartbeat_timeout)");
  const auto found = job.pass(0.5, {2});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LifeFinding::frozen);
  EXPECT_EQ(found[0].ranks, std::vector<int>{2});
  EXPECT_EQ(found[0].text, "rank 2 (pid 102) is frozen: no heartbeat for 2.5 s, process state T (stopped by a signal)");
  EXPECT_TRUE(job.pass(20, {2}).empty()) << "once";
}

TEST(LifeWatch, APauseOfTwoSecondsIsToldAfterwards) {
  Job job;
  job.pass(5);
  job.process(1).state = 'T';
  EXPECT_EQ(job.pass(2.1, {1}).size(), 1u) << "that it stands still";
  job.process(1).state = 'S';
  const auto found = job.pass(3);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LifeFinding::paused);
  EXPECT_EQ(found[0].text,
            "rank 1 (pid 101) gave no heartbeat for 2.2 s (process state T (stopped by a signal)) and goes on");
}

TEST(LifeWatch, AShortPauseIsNotWorthALine) {
  Job job;
  job.pass(5);
  job.pass(0.7, {1});
  EXPECT_TRUE(job.pass(3).empty());
}

TEST(LifeWatch, ARankThatWaitsForAProcessorGetsFourTimesAsLong) {
  Job job;
  job.pass(5);
  job.process(3).state = 'R';
  EXPECT_TRUE(job.pass(9.8, {3}).empty());
  EXPECT_EQ(job.pass(1, {3}).at(0).kind, LifeFinding::frozen);
}

TEST(LifeWatch, ARankThatMerelyWaitsForAProcessorIsNeitherFrozenNorIsItsPauseTold) {
  for (const char state : {'R', 'S'}) {  // one thread sleeps while the heart waits: the sample may show either
    Job job;
    job.pass(5);
    job.wait_for_cpu(3);
    job.process(3).state = state;
    EXPECT_TRUE(job.pass(20, {3}).empty()) << state;
    EXPECT_TRUE(job.pass(3).empty()) << state;
  }
}

TEST(LifeWatch, AStoppedRankIsFrozenOnABusyMachineToo) {
  Job job;
  job.pass(5);
  job.wait_for_cpu(2);
  job.process(2).state = 'T';
  EXPECT_EQ(job.pass(3, {2}).at(1).kind, LifeFinding::frozen);
}

TEST(ProcStatus, CountsTheTimeInWhichAProcessWaitsForAProcessor) {
  // Two threads of ours that compute on one processor: each waits for about half of the time.
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof before, &before), 0);
  int processor = 0;
  while (!CPU_ISSET(processor, &before)) ++processor;
  CPU_ZERO(&one);
  CPU_SET(processor, &one);
  std::atomic<bool> stop = false;
  ASSERT_EQ(sched_setaffinity(0, sizeof one, &one), 0);
  const auto spin = [&] {
    while (!stop) {
    }
  };
  const std::int64_t waited = read_proc_status(getpid()).value().cpu_wait_ns;
  std::thread first(spin), second_thread(spin);
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  const std::int64_t more = read_proc_status(getpid()).value().cpu_wait_ns - waited;
  stop = true;
  first.join();
  second_thread.join();
  ASSERT_EQ(sched_setaffinity(0, sizeof before, &before), 0);
  EXPECT_GT(more, second / 10);
}

TEST(LifeWatch, ARankUnderADebuggerIsNeitherFrozenNorHanging) {
  Job job;
  job.pass(5);
  job.process(0) = {'t', true, 0};
  EXPECT_TRUE(job.pass(60, {0}, false).empty());
  job.process(0) = {'S', false, 0};
  EXPECT_TRUE(job.pass(30).empty());
}

TEST(LifeWatch, ASuspendedMachineIsNoFreeze) {
  Job job;
  job.pass(5);
  job.now += 600 * second;  // nobody ran, the agent neither
  EXPECT_TRUE(job.pass(0.8, {0, 1, 2, 3}).empty()) << "they have as long as ever from now on";
  EXPECT_TRUE(job.pass(10).empty());
  job.now += 600 * second;
  job.process(2).state = 'T';
  EXPECT_EQ(job.pass(2.4, {2}).at(0).kind, LifeFinding::stopped);
  EXPECT_EQ(job.pass(0.5, {2}).at(0).kind, LifeFinding::frozen);
}

TEST(LifeWatch, OnlyRanksOfThisGenerationThatHaveJoinedAndNotLeftAreWatched) {
  for (const auto& change :
       {+[](RankSlot& slot) { slot.state = RankState::none; }, +[](RankSlot& slot) { slot.state = RankState::left; },
        +[](RankSlot& slot) { slot.generation = 2; }, +[](RankSlot& slot) { slot.heartbeat_ns = 0; }}) {
    Job job;
    job.pass(1);
    change(job.board.slot(1));
    EXPECT_TRUE(job.pass(20, {1}).empty());
  }
}

TEST(LifeWatch, NoProgressForFiveSecondsIsAHang) {
  Job job;
  job.pass(5);
  EXPECT_TRUE(job.pass(4.8, {}, false).empty());
  const auto found = job.pass(0.5, {}, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LifeFinding::hang);
  EXPECT_EQ(found[0].text,
            "no progress for 5 s (limit 5 s: the larger of 5 s and 5 x p99 step, 0.1 s) although all hearts beat");
  EXPECT_TRUE(job.pass(60, {}, false).empty()) << "once";
}

TEST(LifeWatch, LongStepsHaveALongLimit) {
  Job job;
  for (int i = 0; i < 4; ++i) job.board.slot(i).p99_step_ns = 4 * second;
  job.pass(5);
  EXPECT_TRUE(job.pass(19.8, {}, false).empty());
  EXPECT_EQ(job.pass(1, {}, false).size(), 1u);
}

TEST(LifeWatch, OneRankThatMakesProgressIsEnough) {
  Job job;
  job.pass(5);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(job.pass(3, {}, false).empty());
    job.board.slot(2).progress_ns = job.now;
  }
}

TEST(LifeWatch, AGivenLimitCounts) {
  Job job({2.5, 12, 1});
  job.pass(5);
  EXPECT_TRUE(job.pass(11.8, {}, false).empty());
  EXPECT_EQ(job.pass(0.5, {}, false).size(), 1u);
  Job never({2.5, -1, 1});
  EXPECT_TRUE(never.pass(1000, {}, false).empty());
}

TEST(LifeWatch, BeforeAStepIsKnownAComputingRankHasTenMinutes) {
  Job idle, busy;
  for (Job* job : {&idle, &busy}) {
    for (int i = 0; i < 4; ++i) job->board.slot(i).p99_step_ns = 0;
  }
  busy.compute(1);
  EXPECT_TRUE(idle.pass(29, {}, false).empty());
  EXPECT_EQ(idle.pass(4, {}, false).size(), 1u);
  EXPECT_TRUE(busy.pass(595, {}, false).empty());
  EXPECT_EQ(busy.pass(10, {}, false).size(), 1u);
}

TEST(LifeWatch, OnAnOverloadedMachineAHangHasFourTimesAsLong) {
  Job job;
  job.pass(5);
  job.process(1).state = 'R';  // and gets no processor
  EXPECT_TRUE(job.pass(19.5, {}, false).empty());
  EXPECT_EQ(job.pass(1, {}, false).size(), 1u);
  Job spinning;
  spinning.pass(5);
  spinning.process(1).state = 'R';
  spinning.compute(1);
  EXPECT_EQ(spinning.pass(5.5, {}, false).size(), 1u);
}

TEST(LifeWatch, SavingAndJoiningAreNoHangAndEvaluatingHasAMinute) {
  for (const RankState state : {RankState::saving, RankState::joining}) {
    Job job;
    job.pass(5);
    job.board.slot(0).state = state;
    EXPECT_TRUE(job.pass(300, {}, false).empty());
  }
  Job job;
  job.pass(5);
  job.board.slot(0).state = RankState::evaluating;
  EXPECT_TRUE(job.pass(58, {}, false).empty());
  EXPECT_EQ(job.pass(4, {}, false).size(), 1u);
}

TEST(LifeWatch, AHangIsFoundAlthoughOneRankHasLeft) {
  Job job;
  job.pass(5);
  job.board.slot(3).state = RankState::left;
  EXPECT_EQ(job.pass(8, {}, false).size(), 1u);
}

}  // namespace
}  // namespace tessera::launch
