#include <gtest/gtest.h>

#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/draw.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/table.h>
#include <tests/error_of.h>

#include <limits>

namespace tessera::layout::schedule {
namespace {

double total(const Schedule& schedule, const Costs& costs) { return time_schedule(schedule, costs).total; }

TEST(ScheduleTiming, one_micro_batch_through_two_ranks) {
  const Schedule schedule = gpipe({2, 1, 1});
  Costs costs{.stages = {{.forward = 2, .input_gradient = 3, .weight_gradient = 4, .output_bytes = 10}}};
  EXPECT_DOUBLE_EQ(total(schedule, costs), 2 * (2 + 7));
  costs.latency = 1;
  EXPECT_DOUBLE_EQ(total(schedule, costs), 20) << "there and back";
  costs.seconds_per_byte = 0.5;
  EXPECT_DOUBLE_EQ(total(schedule, costs), 30);
  costs.stages[0].backward = 5;
  EXPECT_DOUBLE_EQ(total(schedule, costs), 26) << "a combined B is cheaper than I and W";
  const Timing timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.ranks[1].first, 8);
  EXPECT_DOUBLE_EQ(timing.ranks[1].last, 15);
  EXPECT_DOUBLE_EQ(timing.ranks[0].busy, 7);
  EXPECT_DOUBLE_EQ(timing.bubble(), 19);
}

TEST(ScheduleTiming, stages_of_different_cost_and_a_slow_channel) {
  // The middle stage dominates; the time before and after it is the bubble.
  Costs costs{.stages = {{1, 1, 1}, {3, 3, 3}, {1, 1, 1}}};
  EXPECT_DOUBLE_EQ(total(gpipe({3, 1, 10}), costs), 10 * 9 + 2 + 4);
  // Messages of one channel are sent one after the other.
  Costs slow{.stages = {{.forward = 1, .input_gradient = 1, .weight_gradient = 0, .output_bytes = 4}},
             .seconds_per_byte = 1};
  EXPECT_DOUBLE_EQ(total(forward_only(gpipe({2, 1, 5})), slow), 1 + 5 * 4 + 1);
}

TEST(ScheduleTiming, a_full_channel_holds_the_sender) {
  // Rank 0 is fast, rank 1 slow: with one message in flight, F2 waits until rank 1 has received message 0.
  const Schedule schedule = forward_only(gpipe({2, 1, 4}));
  Costs costs{.stages = {{.forward = 1}, {.forward = 10}}};
  const auto end_of_first = [&] { return time_schedule(schedule, costs).ranks[0].last; };
  EXPECT_DOUBLE_EQ(end_of_first(), 4);
  costs.outstanding = 1;
  EXPECT_DOUBLE_EQ(end_of_first(), 12) << "message 2 is sent when message 1 is received, at 11; then F3";
  EXPECT_DOUBLE_EQ(total(schedule, costs), 41);
}

TEST(ScheduleTiming, gathers_and_reductions_run_beside_the_computations) {
  const Schedule schedule = with_sharding(gpipe({1, 1, 2}), Gathering::per_batch, true);
  Costs costs{.stages = {{.gather = 5, .reduce = 7, .activation_bytes = 10, .parameter_bytes = 100}}};
  const Timing timing = time_schedule(schedule, costs);
  EXPECT_DOUBLE_EQ(timing.total, 5 + 2 * 3 + 7);
  EXPECT_DOUBLE_EQ(timing.ranks[0].first, 5);
  EXPECT_DOUBLE_EQ(timing.ranks[0].peak_bytes, 120);
  const Schedule often = with_sharding(gpipe({1, 1, 2}), Gathering::per_micro_batch, false);
  EXPECT_DOUBLE_EQ(total(often, costs), 4 * 5 + 2 * 3);
}

TEST(ScheduleTiming, pairs_hide_what_they_are_told_to) {
  const Schedule schedule = dualpipev({2, 2, 6});
  int pairs = 0;
  for (const Action& action : schedule.ranks[0]) pairs += action.with_next;
  Costs costs;
  const double apart = time_schedule(schedule, costs).ranks[0].busy;
  costs.overlap = 0.5;
  EXPECT_DOUBLE_EQ(time_schedule(schedule, costs).ranks[0].busy, apart - 0.5 * pairs) << "half of F in each";
  EXPECT_EQ(testing::error_of([&] {
              costs.overlap = 2;
              (void)time_schedule(schedule, costs);
            }),
            "costs: overlap is 2; at most 1, all of it");
}

/// Each activation is 1 byte, so the memory is the number in flight.
TEST(ScheduleTiming, peak_bytes_are_what_is_in_flight) {
  for (const ScheduleRow& row : schedules())
    for (const int m : {2, 6, 12}) {
      const Schedule schedule = make_schedule(row.name, {4, 0, m});
      const Timing timing = time_schedule(schedule, {.stages = {{.activation_bytes = 1}}});
      const InFlight in_flight = count_in_flight(schedule);
      for (std::size_t rank = 0; rank < 4; ++rank)
        EXPECT_DOUBLE_EQ(timing.ranks[rank].peak_bytes, in_flight.of_rank_before_input[rank]) << row.name;
      // If activations are kept whole until W, their number equals the papers' count of activations in flight.
      const Timing whole = time_schedule(schedule, {.stages = {{.activation_bytes = 1, .weight_gradient_bytes = 1}}});
      for (std::size_t rank = 0; rank < 4; ++rank)
        EXPECT_DOUBLE_EQ(whole.ranks[rank].peak_bytes, in_flight.of_rank[rank]) << row.name;
    }
}

TEST(ScheduleTiming, evaluation_keeps_activations_only_during_their_forward) {
  for (const ScheduleRow& row : schedules()) {
    const Schedule schedule = forward_only(make_schedule(row.name, {4, 0, 6}));
    const Costs costs{.stages = {{.activation_bytes = 10, .parameter_bytes = 100}}};
    for (const RankTiming& rank : time_schedule(schedule, costs).ranks) EXPECT_DOUBLE_EQ(rank.peak_bytes, 10);
    const Schedule often = with_sharding(schedule, Gathering::per_micro_batch, false);
    for (const RankTiming& rank : time_schedule(often, costs).ranks) EXPECT_DOUBLE_EQ(rank.peak_bytes, 110);
  }
}

TEST(ScheduleTiming, costs_that_make_no_sense) {
  const Schedule schedule = gpipe({2, 1, 1});
  const auto error = [&](const Costs& costs) {
    return testing::error_of([&] { (void)time_schedule(schedule, costs); });
  };
  EXPECT_EQ(error({.stages = {{}, {}, {}}}), "costs of 3 stages for a schedule of 2: one for all, or one per stage");
  EXPECT_EQ(error({.stages = {{.forward = -1}}}), "costs: forward is -1; it must be a finite number of at least 0");
  EXPECT_NE(error({.latency = std::numeric_limits<double>::infinity()}).find("latency is inf"), std::string::npos);
  EXPECT_NE(error({.outstanding = -1}).find("at most -1 messages"), std::string::npos);
}

TEST(ScheduleDrawing, planned_beside_measured) {
  const Schedule schedule = one_forward_one_backward({2, 1, 2});
  const Timing planned = time_schedule(schedule);
  Track measured = track_of(planned, "run");
  for (TimedAction& timed : measured.ranks[1]) timed.start += 1, timed.end += 1;  // rank 1 started late
  const std::vector<Track> tracks = {track_of(planned, "plan"), measured};
  EXPECT_EQ(draw_text(schedule, tracks),
            "rank 0 plan  FF..B-.B-\n"
            "             01  0  1\n"
            "rank 0 run   FF..B-.B-\n"
            "             01  0  1\n"
            "rank 1 plan  .FB-FB-..\n"
            "              00 11\n"
            "rank 1 run   ..FB-FB-.\n"
            "               00 11\n");
  const std::string svg = draw_svg(schedule, tracks);
  EXPECT_EQ(svg.find("<svg xmlns="), 0u);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
  std::size_t titles = 0;
  for (std::size_t at = svg.find("<title>"); at != std::string::npos; at = svg.find("<title>", at + 1)) ++titles;
  EXPECT_EQ(titles, 2 * 8u) << "one per computation and track";
  EXPECT_NE(svg.find("<title>1B1  5 to 7</title>"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">rank 1 run</text>"), std::string::npos);
}

TEST(ScheduleDrawing, columns_are_limited_and_chunks_counted) {
  const Schedule schedule = interleaved({2, 3, 4});
  const Timing timing = time_schedule(schedule);
  const std::string whole = draw_text(schedule, {track_of(timing)});
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 6) << "three lines per rank\n" << whole;
  EXPECT_NE(whole.find("\n        0011220 2 02"), std::string::npos) << whole;
  const std::string narrow = draw_text(schedule, {track_of(timing)}, {.columns = 20});
  EXPECT_EQ(narrow.find('\n'), 8 + 20u) << narrow;
  EXPECT_NE(narrow.find('*'), std::string::npos) << narrow;
}

}  // namespace
}  // namespace tessera::layout::schedule
