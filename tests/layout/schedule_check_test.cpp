#include <gtest/gtest.h>

#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/table.h>
#include <tests/error_of.h>

#include "schedule_executor.h"

namespace tessera::layout::schedule {
namespace {

/// The problem of a schedule in text form; "" if it is valid.
std::string problem_of(const std::string& lines, int outstanding = 0) {
  const auto problem = find_problem(parse_text("tessera-schedule 1\n" + lines, "test"), {.outstanding = outstanding});
  return problem ? text_of(*problem) : "";
}

TEST(ScheduleCheck, says_what_is_wrong_and_where) {
  const std::string two = "micro_batches 2\nstages 0 1\n", one = "micro_batches 1\nstages 0 1\n";
  const std::string right0 = "rank 0: 0F0 0F1 0B0 0B1\n", right1 = "rank 1: 1F0 1B0 1F1 1B1\n";
  EXPECT_EQ(problem_of(two + right0 + right1), "");
  EXPECT_EQ(problem_of(two + "rank 0: 0F0 0F1 0B0 0B1 2F0\n" + right1),
            "rank 0, position 4 (2F0): no stage 2; the stages are 0 to 1");
  EXPECT_EQ(problem_of(two + "rank 0: 0F0 0F1 1F0 0B0 0B1\n" + right1),
            "rank 0, position 2 (1F0): stage 1 is on rank 1");
  EXPECT_EQ(problem_of(two + "rank 0: 0F0 0F1 0F2 0B0 0B1\n" + right1),
            "rank 0, position 2 (0F2): unknown micro-batch 2; they are 0 to 1");
  EXPECT_EQ(problem_of(two + "rank 0: 0F0 0F1 0B0 0F0 0B1\n" + right1), "rank 0, position 3 (0F0): repeats position 0");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0 1B0 1B1\n"),
            "rank 1, position 3 (1F1): is missing: every micro-batch passes through every stage");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0 1F1 1B1\n"), "rank 1, position 3 (1B0): is missing, or I and W");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0 1I0 1F1 1B1\n"),
            "rank 1, position 4 (1W0): is missing, the other part of I");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0 1I0 1W0 1B0 1F1 1B1\n"),
            "rank 1, position 1 (1I0): there is 1B0 as well, which includes it: use either B, or I and W");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0 1W0 1I0 1F1 1B1\n"),
            "rank 1, position 1 (1W0): needs 1I0, which comes later, at position 2");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0 1B0 1B1 1F1\n"),
            "rank 1, position 2 (1B1): needs 1F1, which comes later, at position 3");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0 1F1+1B1 1B0\n"),
            "rank 1, position 2 (1B1): needs 1F1, with which it is overlapped, at position 1");
  EXPECT_EQ(problem_of(two + right0 + "rank 1: 1F0+1F1 1B1 1B0\n"),
            "rank 1, position 0 (1F0): an overlapped pair must be two actions, an F and a B or I");
  EXPECT_EQ(problem_of(one + "rank 0: 0F0 0SEND_F0 0B0\nrank 1: 1RECV_F0 1F0 1B0 1SEND_B0\n"),
            "rank 0, position 3 (0RECV_B0): is missing: another rank has the stage that produces it");
  EXPECT_EQ(
      problem_of("micro_batches 1\nstages 0 0\nrank 0: 0F0 0SEND_F0 1RECV_F0 1F0 1B0 0B0\n"),
      "rank 0, position 1 (0SEND_F0): no message is needed: the neighbour does not exist, or is on the same rank");
  EXPECT_EQ(problem_of("micro_batches 1\nstages 0 0\nrank 0: 1F0 0F0 1B0 0B0\n"),
            "rank 0, position 0 (1F0): needs 0F0, which comes later, at position 1");
  EXPECT_EQ(problem_of("micro_batches 1\nstages 0\nrank 0: 0GATHER 0F0 0RESHARD 0B0\n"),
            "rank 0, position 3 (0B0): the parameters of stage 0 are sharded: a GATHER must precede it");
  EXPECT_EQ(
      problem_of("micro_batches 1\nstages 0\nrank 0: 0F0 0I0 0REDUCE 0W0\n"),
      "rank 0, position 3 (0W0): gradients of stage 0 were reduced earlier; the reduction must come after all of them");
  EXPECT_EQ(problem_of("micro_batches 1\nstages 0\nrank 0: 0GATHER 0GATHER 0F0 0B0\n"),
            "rank 0, position 1 (0GATHER): the parameters of stage 0 are already whole");
  EXPECT_EQ(problem_of("micro_batches 1\nstages 0\nrank 0: 0F0 0B0 0REDUCE 0REDUCE\n"),
            "rank 0, position 3 (0REDUCE): gradients of stage 0 were already reduced: one reduction per batch");
  EXPECT_EQ(problem_of(one + "rank 0: 0F0 0B0 0REDUCE\nrank 1: 1F0 1B0\n"),
            "rank 1, position 2 (1REDUCE): is missing: gradients of other stages are reduced");
  EXPECT_EQ(problem_of("micro_batches 1\nstages 0\nrank 0: 0GATHER 0F0 0RESHARD 0GATHER 0B0\n"),
            "rank 0, position 5 (0RESHARD): is missing: the parameters of stage 0 are whole at the end, but a schedule "
            "must end as it begins, since the next batch repeats it");
  EXPECT_EQ(problem_of("micro_batches 1\nstages 0 1\nrank 0: 0GATHER 0F0 0RESHARD\nrank 1: 1GATHER 1F0\n"),
            "rank 1, position 2 (1RESHARD): is missing: the parameters of stage 1 are whole at the end, but a schedule "
            "must end as it begins, since the next batch repeats it");
  EXPECT_EQ(problem_of("micro_batches 2\nstages 0\nrank 0: 0F0 0F1\n"), "") << "evaluation";
}

TEST(ScheduleCheck, receives_stand_in_the_order_of_the_sends) {
  EXPECT_EQ(problem_of("micro_batches 2\nstages 0 1\n"
                       "rank 0: 0F0 0F1 0SEND_F1 0SEND_F0\nrank 1: 1RECV_F0 1F0 1RECV_F1 1F1\n"),
            "rank 1, position 0 (1RECV_F0): message 0 from rank 0 is that of 0SEND_F1 (its position 2): receives must "
            "be in the order of the sends");
}

TEST(ScheduleCheck, circles_are_told_from_rank_to_rank) {
  // Each rank first computes backward of the micro-batch that the other computes last.
  EXPECT_EQ(
      problem_of("micro_batches 2\nstages 0 1\nrank 0: 0F0 0B0 0F1 0B1\nrank 1: 1F1 1B1 1F0 1B0\n"),
      "rank 0, position 1 (0B0): deadlock: rank 0 at position 1 (0B0) waits for 1B0 of rank 1; rank 1 at position 0 "
      "(1F1) waits for 0F1 of rank 0");
  // Stages in a loop: rank 0 sends all its messages before it receives any.
  const std::string stuck =
      "micro_batches 4\nstages 0 1 0\n"
      "rank 0: 0F0 0F1 0F2 0F3 0SEND_F0 0SEND_F1 0SEND_F2 0SEND_F3 2RECV_F0 2F0 2RECV_F1 2F1 2RECV_F2 2F2 2RECV_F3 "
      "2F3\n"
      "rank 1: 1RECV_F0 1F0 1SEND_F0 1RECV_F1 1F1 1SEND_F1 1RECV_F2 1F2 1SEND_F2 1RECV_F3 1F3 1SEND_F3\n";
  EXPECT_EQ(problem_of(stuck, 2), "");
  EXPECT_EQ(
      problem_of(stuck, 1),
      "rank 0, position 7 (0SEND_F3): deadlock: rank 0 at position 7 (0SEND_F3) waits for room for 0SEND_F3, since "
      "at most 1 message is in flight: for the next receive of rank 1; rank 1 at position 5 (1SEND_F1) waits for "
      "room for 1SEND_F1, since at most 1 message is in flight: for the next receive of rank 0");
}

TEST(ScheduleCheck, shapes_that_make_no_sense) {
  const auto reason = [](const Schedule& schedule) { return find_problem(schedule).value().reason; };
  EXPECT_EQ(reason({}), "it has no stages");
  EXPECT_EQ(reason({"", 0, {0}, {{}}}), "0 micro-batches; there must be at least one");
  EXPECT_EQ(reason({"", 1, {0, 2}, {{}, {}}}), "stage 1 is on rank 2, but there are 2 ranks");
  EXPECT_EQ(reason({"", 1, {0, 0}, {{}, {}}}), "rank 1 has no stage: use fewer ranks or more stages");
  EXPECT_EQ(reason({"", 1 << 30, {0}, {{}}}), "is missing: every micro-batch passes through every stage")
      << "and no table is made for what the number claims";
  EXPECT_THROW((void)find_problem(gpipe({2, 1, 2}), {.outstanding = -1}), InputError);
  EXPECT_EQ(testing::error_of([] { check({"mine", 1, {0}, {{}}}); }),
            "schedule mine: rank 0, position 0 (0F0): is missing: every micro-batch passes through every stage");
}

/// Fewer micro-batches than stages, which makes PyTorch jobs hang, is valid here.
TEST(ScheduleCheck, fewer_micro_batches_than_ranks_run) {
  for (const ScheduleRow& row : schedules())
    for (int p = 2; p <= 6; ++p)
      for (int m = 1; m < p; ++m) {
        const Schedule schedule = with_messages(make_schedule(row.name, {p, 0, m}));
        EXPECT_EQ(Executor(schedule, least_outstanding(schedule), 3).run(), "") << row.name << " " << p << " " << m;
      }
}

// Evaluation runs on the same stages as training, with a different number of batches.
TEST(ScheduleCheck, forwards_of_any_number_of_micro_batches) {
  for (const ScheduleRow& row : schedules())
    for (const int batches : {1, 3, 9}) {
      const Schedule training = make_schedule(row.name, {4, 0, 8}), forwards = forward_only(training, batches);
      EXPECT_EQ(find_problem(forwards).value_or(Problem{}).reason, "") << row.name;
      EXPECT_EQ(forwards.rank_of, training.rank_of);
      EXPECT_EQ(count_actions(forwards), batches * training.stages());
      EXPECT_FALSE(has_backward(forwards));
    }
}

TEST(ScheduleLowering, what_leads_out_of_the_tables_is_refused) {
  const Schedule right = make_schedule("1f1b", {2, 1, 2});
  const auto error = [&](auto spoil) {
    Schedule schedule = right;
    spoil(schedule);
    return testing::error_of<Error>([&] { (void)with_messages(schedule); });
  };
  const auto has = [](const std::string& text, const char* words) { return text.find(words) != std::string::npos; };
  EXPECT_EQ(error([](Schedule&) {}), "");
  for (const int stage : {-1, 2, 1 << 30})
    EXPECT_TRUE(
        has(error([&](Schedule& s) { s.ranks[0][0].stage = stage; }), concat("stage ", stage, " of 2").c_str()));
  for (const int micro_batch : {-1, 2, 1 << 30})
    EXPECT_TRUE(has(error([&](Schedule& s) { s.ranks[0][0].micro_batch = micro_batch; }),
                    concat("micro-batch ", micro_batch, " of 2").c_str()));
  EXPECT_TRUE(has(error([](Schedule& s) { s.ranks[0][0].stage = 1; }), "stage 1 is on rank 1, its action on rank 0"));
  EXPECT_TRUE(has(error([](Schedule& s) { s.rank_of[1] = 2; }), "rank 2 of 2"));
  EXPECT_TRUE(has(error([](Schedule& s) { s.micro_batches = -1; }), "-1 micro-batches"));
  EXPECT_TRUE(has(error([](Schedule& s) { s.ranks[1].clear(); }), "1RECV_F0 is not needed by any computation"));
}

TEST(ScheduleLowering, sharded_stages) {
  const Schedule schedule = make_schedule("1f1b", {2, 1, 2});
  const auto second = [](const Schedule& lowered) {
    std::string text;
    for (const Action& action : lowered.ranks[1]) text += (text.empty() ? "" : " ") + text_of(action);
    return text;
  };
  EXPECT_EQ(second(with_messages(with_sharding(schedule, Gathering::per_batch, true))),
            "1GATHER 1RECV_F0 1F0 1B0 1SEND_B0 1RECV_F1 1F1 1B1 1SEND_B1 1RESHARD 1REDUCE");
  EXPECT_EQ(second(with_messages(with_sharding(schedule, Gathering::per_micro_batch, false))),
            "1GATHER 1RECV_F0 1F0 1RESHARD 1GATHER 1B0 1SEND_B0 1RESHARD 1GATHER 1RECV_F1 1F1 1RESHARD 1GATHER 1B1 "
            "1SEND_B1 1RESHARD");
  for (const ScheduleRow& row : schedules())
    for (const Gathering gathering : {Gathering::none, Gathering::per_batch, Gathering::per_micro_batch})
      for (const bool reduce : {false, true}) {
        const Schedule lowered = with_messages(with_sharding(make_schedule(row.name, {3, 0, 6}), gathering, reduce));
        EXPECT_EQ(testing::error_of([&] { check(lowered); }), "");
        EXPECT_EQ(Executor(lowered, 0, 1).run(), "");
        EXPECT_EQ(with_messages(lowered), lowered) << "a second call changes nothing";
        int gathers = 0, reductions = 0;
        for (const auto& actions : lowered.ranks)
          for (const Action& action : actions) {
            gathers += action.kind == Kind::gather;
            reductions += action.kind == Kind::reduce;
          }
        const int stages = lowered.stages();
        EXPECT_EQ(reductions, reduce ? stages : 0);
        if (gathering != Gathering::per_micro_batch)
          EXPECT_EQ(gathers, gathering == Gathering::none ? 0 : stages);
        else
          EXPECT_EQ(gathers, 2 * 6 * stages);
      }
}

}  // namespace
}  // namespace tessera::layout::schedule
