#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "job_under_watch.h"

namespace tessera::launch {
namespace {

TEST(LivenessWatch, AllIsWellWhileHeartsBeatAndStepsEnd) { EXPECT_TRUE(JobUnderWatch().pass(100).empty()); }

TEST(LivenessWatch, AStoppedRankIsFrozenWithinThreeSeconds) {
  JobUnderWatch job;
  job.pass(5);
  job.process(2).state = 'T';
  const auto early = job.pass(2.4, {2});
  ASSERT_EQ(early.size(), 1u);
  EXPECT_EQ(early[0].kind, LivenessFinding::stopped);
  EXPECT_EQ(early[0].text,
            "rank 2 (pid 102) is stopped: no heartbeat for 1 s, process state T (stopped by a signal); the job ends "
            "after 2.5 s (--heartbeat_timeout)");
  const auto found = job.pass(0.5, {2});
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LivenessFinding::frozen);
  EXPECT_EQ(found[0].ranks, std::vector<int>{2});
  EXPECT_EQ(found[0].text, "rank 2 (pid 102) is frozen: no heartbeat for 2.5 s, process state T (stopped by a signal)");
  EXPECT_TRUE(job.pass(20, {2}).empty()) << "once";
}

TEST(LivenessWatch, APauseOfTwoSecondsIsToldAfterwards) {
  JobUnderWatch job;
  job.pass(5);
  job.process(1).state = 'T';
  EXPECT_EQ(job.pass(2.1, {1}).size(), 1u) << "that it stands still";
  job.process(1).state = 'S';
  const auto found = job.pass(3);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LivenessFinding::paused);
  EXPECT_EQ(found[0].text,
            "rank 1 (pid 101) gave no heartbeat for 2.2 s (process state T (stopped by a signal)) and continues");
}

TEST(LivenessWatch, AShortPauseIsNotWorthALine) {
  JobUnderWatch job;
  job.pass(5);
  job.pass(0.7, {1});
  EXPECT_TRUE(job.pass(3).empty());
}

TEST(LivenessWatch, ASilentRankThatIsNotStoppedIsTold) {
  for (const auto& [state, after] : {std::pair('S', 2.5), std::pair('D', 5.0), std::pair('R', 10.0)}) {
    JobUnderWatch job;
    job.pass(5);
    job.process(3).state = state;
    EXPECT_TRUE(job.pass(after - 0.2, {3}).empty()) << state;
    const auto found = job.pass(0.5, {3});
    ASSERT_EQ(found.size(), 1u) << state;
    EXPECT_EQ(found[0].kind, LivenessFinding::report) << state;
    EXPECT_TRUE(job.pass(250, {3}).empty()) << "once, " << state;
    const auto later = job.pass(60, {3});
    EXPECT_EQ(!later.empty() && later[0].kind == LivenessFinding::frozen, state == 'S') << state;
  }
}

TEST(LivenessWatch, ARankThatMerelyWaitsForAProcessorIsNeitherFrozenNorIsItsPauseTold) {
  for (const char state : {'R', 'S'}) {  // one thread sleeps while the heartbeat waits: the sample may show either
                                         // state
    JobUnderWatch job;
    job.pass(5);
    job.wait_for_cpu(3);
    job.process(3).state = state;
    EXPECT_TRUE(job.pass(20, {3}).empty()) << state;
    EXPECT_TRUE(job.pass(3).empty()) << state;
  }
}

TEST(LivenessWatch, AStoppedRankIsFrozenOnABusyMachineToo) {
  JobUnderWatch job;
  job.pass(5);
  job.wait_for_cpu(2);
  job.process(2).state = 'T';
  EXPECT_EQ(job.pass(3, {2}).at(1).kind, LivenessFinding::frozen);
}

TEST(ProcStatus, CountsTheTimeInWhichAProcessWaitsForAProcessor) {
  // Two computing threads of this process share one processor, so each waits about half of the time.
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

TEST(LivenessWatch, ARankUnderADebuggerIsNeitherFrozenNorHanging) {
  JobUnderWatch job;
  job.pass(5);
  job.process(0) = {'t', true, 0, 0};
  EXPECT_TRUE(job.pass(60, {0}, false).empty());
  job.process(0) = {'S', false, 0, 0};
  EXPECT_TRUE(job.pass(30).empty());
}

TEST(LivenessWatch, ASuspendedMachineIsNoFreeze) {
  JobUnderWatch job;
  job.pass(5);
  job.now += 600 * second;  // nothing ran, not even the agent
  EXPECT_TRUE(job.pass(0.8, {0, 1, 2, 3}).empty()) << "they have as long as ever from now on";
  EXPECT_TRUE(job.pass(10).empty());
  job.now += 600 * second;
  job.process(2).state = 'T';
  EXPECT_EQ(job.pass(2.4, {2}).at(0).kind, LivenessFinding::stopped);
  EXPECT_EQ(job.pass(0.5, {2}).at(0).kind, LivenessFinding::frozen);
}

TEST(LivenessWatch, RanksWithoutAHeartAreEndedOnlyWhenTheyAreStopped) {
  const std::vector<std::pair<void (*)(RankSlot&), std::string>> changes = {
      {+[](RankSlot& slot) { slot.state = RankState::none; }, "before it reached tessera::init()"},
      {+[](RankSlot& slot) { slot.state = RankState::left; }, "after it left the job"},
      {+[](RankSlot& slot) { slot.generation = 2; }, "before it reached tessera::init()"},
      {+[](RankSlot& slot) { slot.heartbeat_ns = 0; }, "before it reached tessera::init()"}};
  for (const auto& [change, when] : changes) {
    JobUnderWatch job;
    job.pass(1);
    change(job.board.slot(1));
    EXPECT_TRUE(job.pass(20, {1}).empty());
    job.process(1).state = 'T';
    const auto found = job.pass(3.5, {1});
    ASSERT_EQ(found.size(), 2u);
    EXPECT_EQ(found[0].kind, LivenessFinding::stopped);
    EXPECT_EQ(found[1].kind, LivenessFinding::frozen);
    EXPECT_TRUE(says(found[1].text, concat("s ", when, ", process state T (stopped by a signal)"))) << found[1].text;
    EXPECT_TRUE(job.pass(20, {1}).empty()) << "once";
  }
}

TEST(LivenessWatch, ARankWithoutAHeartThatGoesOnIsNotEnded) {
  JobUnderWatch job;
  job.board.slot(1).state = RankState::none;
  job.process(1).state = 'T';
  EXPECT_EQ(job.pass(2, {1}).size(), 1u) << "that it stands still";
  job.process(1).state = 'S';
  EXPECT_TRUE(job.pass(20, {1}).empty());
}

TEST(LivenessWatch, NoProgressForFiveSecondsIsToldAndForFiveMinutesOfSleepAHang) {
  JobUnderWatch job;
  job.pass(5);
  EXPECT_TRUE(job.pass(4.8, {}, false).empty());
  const auto told = job.pass(0.5, {}, false);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].kind, LivenessFinding::report);
  for (const LivenessFinding& finding : job.pass(293, {}, false)) EXPECT_EQ(finding.kind, LivenessFinding::report);
  const auto found = job.pass(4, {}, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LivenessFinding::hang);
  EXPECT_EQ(found[0].ranks, (std::vector<int>{0, 1, 2, 3}));
  EXPECT_TRUE(says(found[0].text, "(limit 300 s: --hang_timeout) although all heartbeats continue")) << found[0].text;
  EXPECT_TRUE(job.pass(60, {}, false).empty()) << "once";
}

TEST(LivenessWatch, LongStepsAreToldLate) {
  JobUnderWatch job;
  for (int i = 0; i < 4; ++i) job.board.slot(i).p99_step_ns = 4 * second;
  job.pass(5);
  EXPECT_TRUE(job.pass(19.8, {}, false).empty());
  EXPECT_EQ(job.pass(1.5, {}, false).size(), 1u);
}

TEST(LivenessWatch, OneRankThatMakesProgressIsEnough) {
  JobUnderWatch job;
  job.pass(5);
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(job.pass(3, {}, false).empty());
    job.board.slot(2).progress_ns = job.now;
  }
}

TEST(LivenessWatch, AGivenLimitCounts) {
  JobUnderWatch job({2.5, 12, 1});
  job.pass(5);
  for (const LivenessFinding& finding : job.pass(11.8, {}, false)) EXPECT_EQ(finding.kind, LivenessFinding::report);
  EXPECT_EQ(job.pass(1.5, {}, false).back().kind, LivenessFinding::hang);
  JobUnderWatch computing({2.5, 12, 1});
  for (int i = 0; i < 4; ++i) computing.compute(i);
  for (const LivenessFinding& finding : computing.pass(200, {}, false))
    EXPECT_EQ(finding.kind, LivenessFinding::report);
  JobUnderWatch never({2.5, -1, 1});
  EXPECT_TRUE(never.pass(1000, {}, false).empty());
}

TEST(LivenessWatch, BeforeAStepIsKnownTheFirstReportComesAfterHalfAMinute) {
  JobUnderWatch job;
  for (int i = 0; i < 4; ++i) job.board.slot(i).p99_step_ns = 0;
  EXPECT_TRUE(job.pass(29, {}, false).empty());
  EXPECT_EQ(job.pass(4, {}, false).size(), 1u);
}

TEST(LivenessWatch, ARankThatGetsNoProcessorHasFourTimesAsLong) {
  JobUnderWatch job;
  job.pass(5);
  for (int rank = 0; rank < 4; ++rank) job.begin_collective(rank, 7, rank != 2);
  for (const int rank : {0, 1, 3}) job.begin_collective(rank, 8, false);
  job.wait_in_collective({0, 1, 2, 3});
  job.process(2).state = 'R';  // runnable, but gets no processor
  EXPECT_TRUE(job.pass(19.5, {}, false).empty());
  EXPECT_EQ(job.pass(3, {}, false).at(0).kind, LivenessFinding::hang);
}

TEST(LivenessWatch, JoiningIsNotJudged) {
  JobUnderWatch job;
  job.pass(5);
  job.board.slot(0).state = RankState::joining;
  EXPECT_TRUE(job.pass(400, {}, false).empty());
}

TEST(LivenessWatch, AHangIsFoundAlthoughOneRankHasLeft) {
  JobUnderWatch job;
  job.pass(5);
  job.board.slot(3).state = RankState::left;
  EXPECT_EQ(job.pass(310, {}, false).back().kind, LivenessFinding::hang);
}

}  // namespace
}  // namespace tessera::launch
