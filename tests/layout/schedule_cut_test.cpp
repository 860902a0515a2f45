// Cuts for one schedule, compared with all cuts of small chains.
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

/// Eight blocks whose MLP takes twice as long as the attention, and a head.
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

/// Visits every way to distribute `pieces` over `stages`.
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

TEST(ScheduleCut, depths_of_multi_token_prediction_are_work_of_the_end) {
  const std::vector<BlockFlops> blocks(8, {4, 2, 6});
  const ChainTimes plain = chain_of_flops(blocks, {.head = 5}, false);
  const ChainTimes chain = chain_of_flops(blocks, {.head = 5, .depths = {{4, 2, 6}, {4, 0, 1}}, .depth_map = 3}, false);
  EXPECT_EQ(plain.pieces[0].input_gradient, 4 + 2.5 + 6);
  EXPECT_EQ(plain.end.forward, 15);
  EXPECT_EQ(chain.end.forward, 3 * 15 + 2 * 3 + (4 + 1 + 6) + (4 + 1));
  EXPECT_EQ(chain.end.input_gradient, 2 * 3 + (4 + 2.5 + 6) + (4 + 1));
  EXPECT_EQ(chain.end.weight_gradient, 2 * 3 + (4 + 6) + (4 + 1));
  const Schedule schedule = make_schedule("1f1b", {.ranks = 2, .stages_per_rank = 1, .micro_batches = 8});
  EXPECT_LT(cut_for_schedule(chain, schedule)[1].blocks, cut_for_schedule(plain, schedule)[1].blocks)
      << "the last stage has fewer blocks for them";
  const ChainTimes halves = chain_of_flops(blocks, {.head = 5}, true);
  EXPECT_EQ(halves.pieces.size(), 16U);
  EXPECT_EQ(halves.pieces[0].forward + halves.pieces[1].forward, plain.pieces[0].forward);
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
  // With a V placement the first rank has the first and the last stage, so the two must be shorter together, not each.
  const Schedule schedule = make_schedule("zbv", {.ranks = 2, .stages_per_rank = 0, .micro_batches = 8});
  const ChainTimes whole = chain_of(false, 20), halves = chain_of(true, 20);
  const double even = seconds(cut_evenly(8, 4), whole, schedule);
  const double blocks = seconds(cut_for_schedule(whole, schedule), whole, schedule);
  const double cut = seconds(cut_for_schedule(halves, schedule), halves, schedule);
  EXPECT_LT(blocks, even);
  EXPECT_LT(cut, blocks);
}

TEST(ScheduleCut, of_a_large_model_beats_equal_stages) {
  ChainTimes chain{.pieces = std::vector<StageCosts>(64), .halves = true, .end = {10, 0, 0}};
  const Schedule schedule = make_schedule("zbv", {.ranks = 4, .stages_per_rank = 0, .micro_batches = 16});
  const auto found = cut_for_schedule(chain, schedule);
  EXPECT_EQ(found.size(), 8U);
  EXPECT_LE(seconds(found, chain, schedule),
            seconds(parts_of_halves(std::vector<std::int64_t>(8, 8)), chain, schedule));
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
