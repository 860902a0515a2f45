/// \file
/// The watchdog's rule in docs/launching.md as a table of phase x condition: one rank is in a phase and a condition
/// while the others wait for it in a collective. The table gives the reports of the first minute and a half, and when
/// ranks are terminated.

#include "job_under_watch.h"

namespace tessera::launch {
namespace {

using Outcome = std::string;

enum class Condition { computes, disk, sleeps, stopped, debugger };

constexpr RankState phases[] = {RankState::none,       RankState::running, RankState::working,
                                RankState::evaluating, RankState::saving,  RankState::left};

/// "nothing", "reported", or "ended" with the reason.
Outcome what_happens(RankState phase, Condition condition, double seconds) {
  JobUnderWatch job;
  job.pass(5);
  RankSlot& slot = job.board.slot(1);
  const bool came = phase != RankState::none, heart = came && phase != RankState::left;
  slot.state = phase;
  if (!came) slot.heartbeat_ns = 0;
  if (heart) job.wait_in_collective({0, 2, 3});
  if (phase == RankState::none) {
    for (const int other : {0, 2, 3}) job.board.slot(other).state = RankState::joining;
  }
  if (phase == RankState::left) {
    for (const int other : {0, 2, 3}) job.board.slot(other).state = RankState::left;
  }
  ProcStatus& process = job.process(1);
  if (condition == Condition::computes) job.compute(1);
  if (condition == Condition::disk) process.state = 'D';
  if (condition == Condition::stopped) process.state = 'T';
  if (condition == Condition::debugger) process = {'t', true, 0, 0};
  const bool silent = condition == Condition::stopped || condition == Condition::debugger || !heart;
  Outcome outcome = "nothing";
  for (const LivenessFinding& finding : job.pass(seconds, silent ? std::vector<int>{1} : std::vector<int>{}, false)) {
    if (finding.kind == LivenessFinding::report && outcome == "nothing") outcome = "reported";
    if (finding.kind == LivenessFinding::frozen || finding.kind == LivenessFinding::hang) outcome = "ended";
  }
  return outcome;
}

Outcome expected(RankState phase, Condition condition, double seconds) {
  if (condition == Condition::debugger) return "nothing";
  if (condition == Condition::stopped) return "ended";
  if (phase == RankState::none || phase == RankState::left)
    return "nothing";  // missing ranks are reported by the
                       // rendezvous
  if (condition == Condition::sleeps && phase == RankState::running && seconds > 310) return "ended";
  return "reported";
}

TEST(LivenessTable, APhaseAndAConditionDecide) {
  for (const RankState phase : phases) {
    for (const Condition condition :
         {Condition::computes, Condition::disk, Condition::sleeps, Condition::stopped, Condition::debugger}) {
      for (const double seconds : {90.0, 400.0}) {
        EXPECT_EQ(what_happens(phase, condition, seconds), expected(phase, condition, seconds))
            << state_name(phase) << ", condition " << static_cast<int>(condition) << ", " << seconds << " s";
      }
    }
  }
}

TEST(LivenessTable, AStoppedRankIsEndedWithinThreeSecondsInEveryPhase) {
  for (const RankState phase : phases)
    EXPECT_EQ(what_happens(phase, Condition::stopped, 3.5), "ended") << state_name(phase);
}

TEST(LivenessTable, AReportNamesRankPhaseAndSecondsAndComesLessAndLessOften) {
  JobUnderWatch job;
  job.pass(5);
  job.wait_in_collective({0, 2, 3});
  job.compute(1);
  job.board.slot(1).step = 4;
  write_text(job.board.slot(1).phase, "forward");
  const auto found = job.pass(100, {}, false);
  ASSERT_EQ(found.size(), 5u);  // after 5, 10, 20, 40, 80 s
  EXPECT_TRUE(
      found[0].text.starts_with("no progress for 5 s: rank 1 (pid 101) computes (1 of a processor), step 4, "
                                "forward; ranks 0, 2, 3 wait in a collective; no rank is terminated for this; "
                                "reported again after 10"))
      << found[0].text;
}

TEST(LivenessTable, ADeclaredPhaseIsReportedAfterAMinute) {
  JobUnderWatch job;
  job.pass(5);
  job.wait_in_collective({0, 2, 3});
  job.board.slot(1).state = RankState::working;
  write_text(job.board.slot(1).phase, "merging adapters");
  EXPECT_TRUE(job.pass(58, {}, false).empty());
  const auto found = job.pass(4, {}, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(says(
      found[0].text,
      "rank 1 (pid 101) sleeps, merging adapters; ranks 0, 2, 3 wait in a collective; no rank is terminated for this"))
      << found[0].text;
}

TEST(LivenessTable, ALockOfAnotherProgramIsTold) {
  JobUnderWatch job;
  job.waits_for = "/cache/lock, which it has open, is locked by another program: pid 9 (train)";
  job.pass(5);
  const auto found = job.pass(8, {}, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(says(found[0].text, "(/cache/lock, which it has open, is locked by another program: pid 9 (train))"))
      << found[0].text;
}

TEST(LivenessTable, ARankThatAllPeersHavePassedIsEndedWithinSeconds) {
  JobUnderWatch job;
  job.pass(5);
  for (int rank = 0; rank < 4; ++rank) job.begin_collective(rank, 7, rank != 2);
  for (const int rank : {0, 1, 3}) job.begin_collective(rank, 8, false);
  job.wait_in_collective({0, 1, 2, 3});
  const auto found = job.pass(8, {}, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LivenessFinding::hang);
  EXPECT_EQ(found[0].ranks, std::vector<int>{2});
  EXPECT_LT(found[0].seconds, 7);
}

TEST(LivenessTable, ARankThatComputesBesideACollectiveThatAllHavePassedIsReported) {
  JobUnderWatch job;  // it has begun the collective without waiting for it yet
  job.pass(5);
  for (int rank = 0; rank < 4; ++rank) job.begin_collective(rank, 7, rank != 2);
  for (const int rank : {0, 1, 3}) job.begin_collective(rank, 8, false);
  job.wait_in_collective({0, 1, 3});
  job.compute(2);
  for (const LivenessFinding& finding : job.pass(400, {}, false)) EXPECT_EQ(finding.kind, LivenessFinding::report);
}

TEST(LivenessTable, AWaitForARankThatHasLeftIsEndedWithinSeconds) {
  JobUnderWatch job;
  job.pass(5);
  for (int rank = 0; rank < 4; ++rank) job.begin_collective(rank, 7, true);
  for (const int rank : {0, 1, 3}) job.begin_collective(rank, 8, false);
  job.wait_in_collective({0, 1, 3});
  job.board.slot(2).state = RankState::left;
  job.watched[2].ended = true;
  const auto found = job.pass(8, {2}, false);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].kind, LivenessFinding::hang);
}

TEST(LivenessTable, RanksInACollectiveWhoseOthersAreOnAnotherHostAreNotEndedWithinSeconds) {
  JobUnderWatch job;
  job.pass(5);
  for (int rank = 0; rank < 4; ++rank) job.begin_collective(rank, 7, false, 8);
  job.wait_in_collective({0, 1, 2, 3});
  const auto found = job.pass(90, {}, false);
  ASSERT_FALSE(found.empty());
  for (const LivenessFinding& finding : found) EXPECT_EQ(finding.kind, LivenessFinding::report) << finding.text;
}

TEST(LivenessTable, ASecondOfComputingBeginsTheTimeOfASleeperAnew) {
  JobUnderWatch job;
  job.pass(5);
  job.wait_in_collective({0, 2, 3});
  job.pass(250, {}, false);
  job.process(1).cpu_ticks += 100;
  for (const LivenessFinding& finding : job.pass(250, {}, false)) EXPECT_EQ(finding.kind, LivenessFinding::report);
  EXPECT_EQ(job.pass(100, {}, false).back().kind, LivenessFinding::hang);
}

}  // namespace
}  // namespace tessera::launch
