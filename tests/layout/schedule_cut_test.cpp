// Cuts for one schedule, against all cuts of small chains.
#include <gtest/gtest.h>

#include <tessera/layout/schedule/cut.h>
#include <tessera/layout/schedule/table.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tessera::layout::schedule {
namespace {

/// Eight blocks, of which the MLP takes twice as long as the attention, and a head.
ChainTimes chain_of(bool halves, double end) {
  ChainTimes chain{.pieces = {}, .halves = halves, .end = {end, 0, 0}};
  for (int block = 0; block < 8; ++block) {
    if (halves) {
      chain.pieces.push_back({1.2, 1.5, 1});
      chain.pieces.push_back({2, 2, 2});
    } else {
      chain.pieces.push_back({3.2, 3.5, 3});
    }
  }
  return chain;
}

double seconds(const std::vector<StagePart>& parts, const ChainTimes& chain, const Schedule& schedule) {
  return time_schedule(schedule, {.stages = stage_costs(parts, chain)}).total;
}

/// Every way of sharing out so many pieces.
void each_cut(std::int64_t pieces, std::size_t stages, std::vector<std::int64_t>& counts,
              const std::function<void()>& visit) {
  if (counts.size() + 1 == stages) {
    counts.push_back(pieces);
    visit();
    counts.pop_back();
    return;
  }
  for (std::int64_t own = 0; own <= pieces; ++own) {
    counts.push_back(own);
    each_cut(pieces - own, stages, counts, visit);
    counts.pop_back();
  }
}

TEST(ScheduleCut, is_as_good_as_the_best_of_all_cuts) {
  for (const char* name : {"1f1b", "zb_h1", "interleaved", "zbv", "dualpipev"})
    for (const double end : {0.0, 9.0})
      for (const bool halves : {false, true}) {
        const Schedule schedule = make_schedule(name, {.ranks = 2, .stages_per_rank = 0, .micro_batches = 4});
        const ChainTimes chain = chain_of(halves, end);
        double best = 1e300;
        std::vector<std::int64_t> counts;
        each_cut(static_cast<std::int64_t>(chain.pieces.size()), static_cast<std::size_t>(schedule.stages()), counts,
                 [&] {
                   std::vector<std::int64_t> as_halves = counts;
                   if (!halves)
                     for (std::int64_t& count : as_halves) count *= 2;
                   best = std::min(best, seconds(parts_of_halves(as_halves), chain, schedule));
                 });
        const auto found = cut_for_schedule(chain, schedule);
        EXPECT_LE(seconds(found, chain, schedule), 1.01 * best)
            << name << ", head " << end << ", " << stage_layout(found);
        EXPECT_EQ(found.back().past_block(), 8);
        EXPECT_EQ(cuts_blocks(found) && !halves, false);
      }
}

TEST(ScheduleCut, beats_equal_stages_where_a_rank_has_two) {
  // To and fro: the first rank's two stages have the head, so they are to be shorter together, not each.
  const Schedule schedule = make_schedule("zbv", {.ranks = 2, .stages_per_rank = 0, .micro_batches = 8});
  const ChainTimes whole = chain_of(false, 20), halves = chain_of(true, 20);
  const double even = seconds(cut_evenly(8, 4), whole, schedule);
  const double blocks = seconds(cut_for_schedule(whole, schedule), whole, schedule);
  const double cut = seconds(cut_for_schedule(halves, schedule), halves, schedule);
  EXPECT_LT(blocks, even);
  EXPECT_LT(cut, blocks);
}

TEST(ScheduleCut, of_a_large_model_takes_no_time) {
  ChainTimes chain{.pieces = std::vector<StageCosts>(256), .halves = true, .end = {20, 0, 0}};
  const Schedule schedule = make_schedule("zbv", {.ranks = 16, .stages_per_rank = 0, .micro_batches = 64});
  const auto found = cut_for_schedule(chain, schedule);
  EXPECT_EQ(found.size(), 32U);
  EXPECT_LE(seconds(found, chain, schedule),
            seconds(parts_of_halves(std::vector<std::int64_t>(32, 8)), chain, schedule));
}

TEST(ScheduleCut, knows_what_halves_take_only_where_they_are_given) {
  EXPECT_THROW((void)stage_costs(parts_of_halves({3, 1}), {.pieces = std::vector<StageCosts>(2)}), std::exception);
  const auto costs = stage_costs(parts_of_halves({3, 1}), {.pieces = {{1, 0, 0}, {2, 0, 0}, {4, 0, 0}, {8, 0, 0}},
                                                           .halves = true,
                                                           .embeddings = {16, 0, 0},
                                                           .end = {32, 0, 0}});
  EXPECT_EQ(costs[0].forward, 1 + 2 + 4 + 16);
  EXPECT_EQ(costs[1].forward, 8 + 32);
}

}  // namespace
}  // namespace tessera::layout::schedule
