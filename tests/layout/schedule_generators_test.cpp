#include <gtest/gtest.h>

#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/draw.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/table.h>
#include <tests/error_of.h>
#include <tests/growth.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <map>
#include <optional>

namespace tessera::layout::schedule {
namespace {

using testing::error_of;

/// Every schedule with every shape up to 8 ranks: visit(row, shape).
template <class Visit>
void for_all_shapes(const Visit& visit) {
  for (const ScheduleRow& row : schedules())
    for (int v = row.least_stages; v <= (row.most_stages == 0 ? 3 : row.most_stages); ++v)
      for (int p = 1; p <= 8; ++p)
        for (const int m : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 15, 16, 21, 24}) {
          visit(row, Shape{p, v, m, 0});
          if (row.takes_groups && m > p && p % 2 == 0) visit(row, Shape{p, v, m, p + 1});
        }
}

std::string describe(const ScheduleRow& row, const Shape& shape) {
  return concat(row.name, " p ", shape.ranks, " v ", shape.stages_per_rank, " m ", shape.micro_batches, " G ",
                shape.group_size);
}

TEST(ScheduleGenerators, all_are_right_and_hold_what_the_formulas_say) {
  for_all_shapes([](const ScheduleRow& row, const Shape& shape) {
    const Schedule schedule = row.make(shape);
    ASSERT_EQ(error_of([&] { check(schedule); }), "") << describe(row, shape);
    ASSERT_EQ(schedule.name, row.name);
    ASSERT_EQ(schedule.rank_of, place_stages(row.placement, shape.ranks, shape.stages_per_rank));
    const InFlight in_flight = count_in_flight(schedule);
    const bool filled_up = shape.group_size != 0 && shape.micro_batches % shape.group_size != 0;
    for (int rank = 0; rank < shape.ranks; ++rank) {
      const int counted = in_flight.of_rank[static_cast<std::size_t>(rank)], formula = row.in_flight_of(shape, rank);
      ASSERT_LE(counted, formula) << describe(row, shape) << " rank " << rank;
      ASSERT_TRUE(filled_up || counted == formula) << describe(row, shape) << " rank " << rank;
    }
  });
}

TEST(ScheduleGenerators, bubbles_are_as_in_theory) {
  int formulas = 0, inner = 0, turn = 0;
  for_all_shapes([&](const ScheduleRow& row, const Shape& shape) {
    std::optional<Schedule> schedule;  // built once and reused for all stage times
    for (const StageTime& time :
         {StageTime{1, 1, 1}, StageTime{1, 2, 1}, StageTime{2, 1, 0.5}, StageTime{1, 1, 2}, StageTime{1, 1.25, 1.125},
          StageTime{0.5, 3, 5}, StageTime{1, 3, 2}, StageTime{1, 4, 1}, StageTime{2, 3, 1}, StageTime{0, 1, 1}}) {
      // Ranks above 4 cost most, so there the times take turns: each time covers every schedule with a third of its
      // shapes.
      if (shape.ranks > 4 && ++turn % 3 != 0) continue;
      const auto bubble = row.bubble_time(shape, time), inside = row.inner_bubble_time(shape, time);
      if (!bubble) continue;
      if (!schedule) schedule = row.make(shape);
      const Timing timing = time_schedule(*schedule, {.stages = {{.forward = time.forward,
                                                                  .input_gradient = time.input_gradient,
                                                                  .weight_gradient = time.weight_gradient}}});
      const double ideal =
          shape.micro_batches * shape.stages_per_rank * (time.forward + time.input_gradient + time.weight_gradient);
      ASSERT_DOUBLE_EQ(timing.total - ideal, *bubble) << describe(row, shape);
      ASSERT_DOUBLE_EQ(timing.bubble(), *bubble) << describe(row, shape);
      ASSERT_TRUE(inside.has_value());
      ASSERT_NEAR(timing.inner_bubble(), *inside, 1e-9) << describe(row, shape);
      ++formulas;
      inner += *inside == 0 && shape.ranks > 1;
    }
  });
  EXPECT_GT(formulas, 8'000);
  EXPECT_GT(inner, 50) << "schedules without a bubble inside the ranks' steps";
}

/// The model is the same, so with v = 2 a stage costs half.
TEST(ScheduleGenerators, four_ranks_of_equal_cost_are_ordered_as_in_the_papers) {
  for (const int m : {8, 12, 16, 32}) {
    std::map<std::string_view, double> total;
    for (const ScheduleRow& row : schedules()) {
      const double chunk = 1.0 / std::max(row.least_stages, row.name == "looped_bfs" ? 2 : 1);
      const int v = row.name == "looped_bfs" ? 2 : row.least_stages;
      total[row.name] = time_schedule(row.make({4, v, m}), {.stages = {{chunk, chunk, chunk}}}).total;
    }
    EXPECT_LE(total["zbv"], total["zb_h1"]);
    EXPECT_LT(total["zb_h1"], total["interleaved_1f1b"]);
    EXPECT_LT(total["interleaved_1f1b"], total["1f1b"]);
    EXPECT_LE(total["1f1b"], total["gpipe"]);
    EXPECT_DOUBLE_EQ(total["zbv"], 3 * m + 1.5);
    EXPECT_DOUBLE_EQ(total["zb_h1"], 3 * m + 3);
    EXPECT_DOUBLE_EQ(total["interleaved_1f1b"], 3 * m + 4.5);
    EXPECT_DOUBLE_EQ(total["1f1b"], 3 * m + 9);
  }
}

/// Weight gradients are summed in the same order everywhere, so that schedules agree bit for bit.
TEST(ScheduleGenerators, every_stage_goes_through_the_micro_batches_in_order) {
  for_all_shapes([](const ScheduleRow& row, const Shape& shape) {
    for (const auto& actions : row.make(shape).ranks) {
      std::map<std::pair<int, bool>, int> next;  // (stage, whether weights get gradients) -> next micro-batch
      for (const Action& action : actions) {
        const bool weights = action.kind == Kind::weight_gradient || action.kind == Kind::backward;
        if (!weights && action.kind != Kind::forward) continue;
        ASSERT_EQ(action.micro_batch, (next[{action.stage, weights}]++)) << describe(row, shape);
      }
    }
  });
}

std::string drawn(const char* name, const Shape& shape) {
  const Schedule schedule = make_schedule(name, shape);
  return draw_text(schedule, {track_of(time_schedule(schedule))});
}

// Narayanan et al. 2021, figures 3 and 4 (4 devices, 8 micro-batches; they count from 1); Qi et al. 2023, figure 3; Qi
// et al. 2024, figure 1. All orders except ZB-H2's are also compared with PyTorch's (schedule_files_test.cpp).
TEST(ScheduleGenerators, drawings_are_those_of_the_papers) {
  EXPECT_EQ(drawn("1f1b", {4, 1, 8}),
            "rank 0  FFFF......B-FB-FB-FB-FB-.B-.B-.B-\n"
            "        0123      0 41 52 63 74  5  6  7\n"
            "rank 1  .FFF....B-FB-FB-FB-FB-FB-.B-.B-..\n"
            "         012    0 31 42 53 64 75  6  7\n"
            "rank 2  ..FF..B-FB-FB-FB-FB-FB-FB-.B-....\n"
            "          01  0 21 32 43 54 65 76  7\n"
            "rank 3  ...FB-FB-FB-FB-FB-FB-FB-FB-......\n"
            "           00 11 22 33 44 55 66 77\n");
  EXPECT_EQ(drawn("interleaved", {4, 2, 8}),
            "rank 0  FFFFffffFFF...b-Fb-.fb-fb-fB-fB-B-.B-.b-.b-.b-.b-B-B-B-B-\n"
            "        01230123456   0 71  42 53 60 71 2  3  4  5  6  7 4 5 6 7\n"
            "rank 1  .FFFFffffF..b-Fb-Fb-Fb-fB-fB-fB-fB-.b-.b-.b-.b-B-B-B-B-..\n"
            "         012301234  0 51 62 73 40 51 62 73  4  5  6  7 4 5 6 7\n"
            "rank 2  ..FFFFfff.b-fb-Fb-Fb-FB-FB-fB-fB-fb-fb-.b-.b-B-B-B-B-....\n"
            "          0123012 0 31 42 53 60 71 42 53 64 75  6  7 4 5 6 7\n"
            "rank 3  ...FFFFfb-fb-fb-fb-FB-FB-FB-FB-fb-fb-fb-fb-B-B-B-B-......\n"
            "           012300 11 22 33 40 51 62 73 44 55 66 77 4 5 6 7\n");
  EXPECT_EQ(drawn("zb_h1", {4, 1, 8}),
            "rank 0  FFFF...IWFIWFIWFIWFIWIWIWIW\n"
            "        0123   00411522633744556677\n"
            "rank 1  .FFF..IFIWFIWFIWFIWFIWIWIWW\n"
            "         012  031042153264375465767\n"
            "rank 2  ..FF.IFIFIWFIWFIWFIWFIWIWWW\n"
            "          01 0213204315426537647567\n"
            "rank 3  ...FIFIFIFIWFIWFIWFIWFIWWWW\n"
            "           001122330441552663774567\n");
  EXPECT_EQ(drawn("zb_h2", {4, 1, 8}),
            "rank 0  FFFFFFFIWFIWIWIWIWIWIWIW...\n"
            "        012345600711223344556677\n"
            "rank 1  .FFFFFIFIFIWFIWIWIWIWIWWW..\n"
            "         012340516207314253647567\n"
            "rank 2  ..FFFIFIFIFIFIWFIWIWIWWWWW.\n"
            "          012031425364075162734567\n"
            "rank 3  ...FIFIFIFIFIFIFIWFIWWWWWWW\n"
            "           001122334455660771234567\n");
  EXPECT_EQ(drawn("zbv", {4, 2, 8}),
            "rank 0  FFFFFFFfiwfiwfiwfiwFIWfiwIWfiwIWfiwIWfiwIWIWIWIW...\n"
            "        012345600011122233370044411555226663377744556677\n"
            "rank 1  .FFFFFfFfiwfiwfiwFIWfiwFIWfiwIWfiwIWfiwIiIWIWIWwW..\n"
            "         012340510021132260043371154422655337664754657677\n"
            "rank 2  ..FFFfFfFfiwfiwFIWfiwFIWfiwFIWfiwIWfiwIiIiIWIWwwWW.\n"
            "          012031420031150042261153372264433755465764756767\n"
            "rank 3  ...FfFfFfFfiwFIWfiwFIWfiwFIWfiwFIWfiwIiIiIiIWwwwWWW\n"
            "           001122330040041151152262263373374445566774567567\n");
}

TEST(ScheduleGenerators, placements) {
  EXPECT_EQ(place_stages(Placement::loop, 4, 2), (std::vector<int>{0, 1, 2, 3, 0, 1, 2, 3}));
  EXPECT_EQ(place_stages(Placement::v, 4, 2), (std::vector<int>{0, 1, 2, 3, 3, 2, 1, 0}));
  EXPECT_EQ(place_stages(Placement::v, 2, 3), (std::vector<int>{0, 1, 1, 0, 0, 1}));
  EXPECT_THROW((void)place_stages(Placement::loop, 0, 1), InputError);
}

TEST(ScheduleGenerators, names_of_other_systems) {
  for (const auto& [theirs, ours] : std::map<std::string, std::string>{{"ScheduleGPipe", "gpipe"},
                                                                       {"Schedule1F1B", "1f1b"},
                                                                       {"ScheduleInterleaved1F1B", "interleaved_1f1b"},
                                                                       {"Interleaved1F1B", "interleaved_1f1b"},
                                                                       {"ScheduleLoopedBFS", "looped_bfs"},
                                                                       {"ScheduleInterleavedZeroBubble", "zb_h1"},
                                                                       {"zb-h2", "zb_h2"},
                                                                       {"ScheduleZBVZeroBubble", "zbv"},
                                                                       {"ScheduleDualPipeV", "dualpipev"}})
    EXPECT_EQ(schedule_of(theirs).name, ours) << theirs;
  EXPECT_EQ(find_schedule("zbx"), nullptr);
  EXPECT_EQ(error_of([] { (void)schedule_of("zbx"); }), "unknown pipeline schedule 'zbx'; did you mean zbv?");
  EXPECT_NE(error_of([] { (void)schedule_of("nothing like it"); }).find("the schedules are gpipe, 1f1b"),
            std::string::npos);
}

/// The time is proportional to the size of the result, not to p^2 steps or to p entries per rank.
TEST(ScheduleGenerators, many_ranks_and_few_micro_batches) {
  for (const ScheduleRow& row : schedules()) {
    if (row.name == "zb_h2" || row.placement == Placement::v) continue;  // these always fill the pipeline
    Schedule schedule;
    EXPECT_LE(testing::growth([&] { (void)row.make({25'000, row.least_stages, 1}); },
                              [&] { schedule = row.make({200'000, row.least_stages, 1}); }),
              testing::linear_growth)
        << row.name;
    EXPECT_GE(count_actions(schedule), std::int64_t{2} * schedule.stages()) << row.name;
  }
}

TEST(ScheduleGenerators, makers_are_known_by_what_they_make) {
  for (const ScheduleRow& row : schedules()) {
    Schedule schedule = with_messages(with_sharding(make_schedule(row.name, {4, 0, 9}), Gathering::per_batch, true));
    ASSERT_NE(find_maker(schedule), nullptr) << row.name;
    EXPECT_EQ(find_maker(schedule)->name, row.name);
    schedule.name = "1f1b";
    EXPECT_EQ(find_maker(schedule)->name, row.name == "looped_bfs" ? "gpipe" : row.name) << "equal with v = 1";
    // A different valid order is not attributed to any schedule.
    const auto last = schedule.ranks[0].end() - 1;
    std::iter_swap(std::find_if(schedule.ranks[0].begin(), last, [](const Action& a) { return is_compute(a.kind); }),
                   std::find_if(std::make_reverse_iterator(last), schedule.ranks[0].rend(),
                                [](const Action& a) { return is_compute(a.kind); }));
    EXPECT_EQ(find_maker(schedule), nullptr) << row.name;
  }
  EXPECT_EQ(find_maker({}), nullptr);
  EXPECT_EQ(find_maker({"gpipe", 1, {0, 1, 0}, {{}, {}}}), nullptr);
}

TEST(ScheduleGenerators, refusals_name_the_nearest_shape) {
  const auto refused = [](const char* name, const Shape& shape) {
    return error_of([&] { (void)make_schedule(name, shape); });
  };
  EXPECT_EQ(refused("zbv", {4, 3, 8}), "schedule zbv: 3 stages per rank; it needs exactly 2: the nearest is 2");
  EXPECT_EQ(refused("1f1b", {4, 2, 8}), "schedule 1f1b: 2 stages per rank; it needs exactly 1: the nearest is 1");
  EXPECT_NE(refused("interleaved", {4, 1, 8}).find("at least 2, otherwise use 1f1b: the nearest is 2"),
            std::string::npos);
  EXPECT_NE(refused("1f1b", {4, 1, 0}).find("each must be at least 1"), std::string::npos);
  EXPECT_NE(refused("interleaved", {4, 2, 8, 3}).find("from 4 to 8 can pass a stage together: the nearest is 4"),
            std::string::npos);
  EXPECT_NE(refused("zbv", {4, 2, 8, 4}).find("are not supported"), std::string::npos);
  EXPECT_NE(refused("gpipe", {1 << 20, 1, 1 << 20}).find("largest schedule"), std::string::npos);
  constexpr int huge = std::numeric_limits<int>::max();
  for (const ScheduleRow& row : schedules())
    for (const Shape& shape : {Shape{huge, 2, huge}, Shape{huge, huge, 1}, Shape{huge, huge, huge}, Shape{2, 2, huge}})
      EXPECT_NE(refused(std::string(row.name).c_str(), shape).find("largest schedule"), std::string::npos) << row.name;
  // These run 2 p micro-batches if fewer are given.
  EXPECT_EQ(refused("zbv", {20'000, 2, 1}),
            "schedule zbv: 20000 ranks x 2 stages x 40000 micro-batches (needed to fill the pipeline; those from 1 on "
            "are dropped) exceed the 89478485 computations of the largest schedule");
  for (const char* name : {"zb_h2", "dualpipev"})
    EXPECT_NE(refused(name, {20'000, 0, 1}).find("x 40000 micro-batches (needed to fill"), std::string::npos) << name;
  EXPECT_EQ(make_schedule("zbv", {4, 0, 8}).stages(), 8) << "0 stages per rank: as many as it needs";
}

}  // namespace
}  // namespace tessera::layout::schedule
