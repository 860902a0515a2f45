// Cutting a model into pipeline stages: even cuts, cuts by cost against an exhaustive search, and
// Megatron's layout string.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/layout/schedule/schedule.h>
#include <tessera/layout/stages.h>
#include <tests/error_of.h>
#include <tests/growth.h>

#include <algorithm>
#include <functional>
#include <limits>
#include <string>
#include <vector>

namespace tessera::layout {
namespace {

using testing::error_of;
using Counts = std::vector<std::int64_t>;

/// Uniform in [begin, end): rapidcheck's inRange stays near the low end in early cases.
std::int64_t any_of(std::int64_t begin, std::int64_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(begin, end));
}

Counts counts_of(const std::vector<StagePart>& parts) {
  Counts counts;
  for (const StagePart& part : parts) counts.push_back(part.blocks);
  return counts;
}

/// Whether the parts form a chain: every block once and in order, embeddings first, the end last.
bool is_chain(const std::vector<StagePart>& parts, std::int64_t blocks) {
  std::int64_t next = 0;
  for (std::size_t s = 0; s < parts.size(); ++s) {
    if (parts[s].first_block != next || parts[s].blocks < 0) return false;
    if (parts[s].embeddings != (s == 0) || parts[s].end != (s + 1 == parts.size())) return false;
    next = parts[s].past_block();
  }
  return !parts.empty() && next == blocks;
}

TEST(Stages, AreNamed) {
  EXPECT_EQ(text_of({true, false, 0, 4}), "embeddings, blocks 0-3");
  EXPECT_EQ(text_of({false, true, 4, 4}), "blocks 4-7, end");
  EXPECT_EQ(text_of({false, false, 4, 1}), "block 4");
  EXPECT_EQ(text_of({true, true, 0, 0}), "embeddings, end");
  EXPECT_EQ(text_of({false, false, 7, 0}), "nothing");
}

TEST(Stages, EvenCutsGiveEarlierStagesWhatIsLeft) {
  EXPECT_EQ(counts_of(cut_evenly(8, 4)), (Counts{2, 2, 2, 2}));
  EXPECT_EQ(counts_of(cut_evenly(10, 4)), (Counts{3, 3, 2, 2}));
  EXPECT_EQ(counts_of(cut_evenly(2, 4)), (Counts{1, 1, 0, 0}));
  EXPECT_EQ(counts_of(cut_evenly(5, 1)), (Counts{5}));
  EXPECT_EQ(counts_of(cut_evenly(0, 2)), (Counts{0, 0}));
}

/// torchtitan's generate_llm_fqn_per_model_part(num_stages, num_layers, 1, 1).
TEST(Stages, EvenCutsCountEmbeddingsAndEnd) {
  EXPECT_EQ(counts_of(cut_evenly(8, 4, 1, 1)), (Counts{2, 3, 2, 1}));
  EXPECT_EQ(counts_of(cut_evenly(32, 4, 1, 1)), (Counts{8, 9, 8, 7}));
  EXPECT_EQ(counts_of(cut_evenly(6, 3, 100, 1)), (Counts{0, 4, 2}));
  EXPECT_EQ(counts_of(cut_evenly(4, 1, 1, 1)), (Counts{4}));
}

RC_GTEST_PROP(Stages, EvenCutsDifferByOneBlock, ()) {
  const std::int64_t blocks = any_of(0, 200);
  const int stages = static_cast<int>(any_of(1, 40));
  const auto parts = cut_evenly(blocks, stages);
  RC_ASSERT(is_chain(parts, blocks));
  for (std::size_t s = 0; s < parts.size(); ++s) {
    RC_ASSERT(parts[s].blocks == blocks / stages + (static_cast<std::int64_t>(s) < blocks % stages ? 1 : 0));
  }
}

/// Moving a block between two stages cannot reduce the larger load of the two.
RC_GTEST_PROP(Stages, EvenCutsWithWeightsCannotBeMadeMoreEven, ()) {
  const std::int64_t blocks = any_of(0, 60);
  const int stages = static_cast<int>(any_of(1, 9));
  const double first = static_cast<double>(any_of(0, 12)) / 2, last = static_cast<double>(any_of(0, 12)) / 2;
  const auto parts = cut_evenly(blocks, stages, first, last);
  RC_ASSERT(is_chain(parts, blocks));
  const auto load = [&](const StagePart& part) {
    return static_cast<double>(part.blocks) + (part.embeddings ? first : 0) + (part.end ? last : 0);
  };
  for (const StagePart& from : parts)
    for (const StagePart& to : parts) {
      RC_ASSERT(from.blocks == 0 || load(from) <= load(to) + 1);
    }
}

TEST(Stages, NumbersThatCannotBeCutAreRefused) {
  EXPECT_EQ(error_of([] { (void)cut_evenly(4, 0); }), "a model cannot be cut into 0 stages; possible are 1 to 65536");
  EXPECT_EQ(error_of([] { (void)cut_evenly(-1, 2); }),
            "a model of -1 blocks cannot be cut into stages; possible are 0 to 65536 blocks");
  EXPECT_EQ(error_of([] { (void)cut_evenly(4, 2, -1); }),
            "the cost of embeddings, in blocks, is -1; it must be finite and at least 0");
  EXPECT_EQ(error_of([] { (void)cut_by_cost({{1, 2}, 0, 0}, 0); }),
            "a model cannot be cut into 0 stages; possible are 1 to 65536");
  EXPECT_EQ(error_of([] { (void)cut_by_cost({{1, std::numeric_limits<double>::quiet_NaN()}, 0, 0}, 2); }),
            "the cost of block 1 is nan; it must be finite and at least 0");
}

TEST(Stages, CutsByCost) {
  EXPECT_EQ(counts_of(cut_by_cost({{1, 1, 1, 1}, 0, 0}, 2)), (Counts{2, 2}));
  EXPECT_EQ(counts_of(cut_by_cost({{1, 1, 1, 1, 1, 1}, 1, 3}, 2)), (Counts{4, 2}));
  EXPECT_EQ(counts_of(cut_by_cost({{5, 1, 1, 1}, 0, 0}, 2)), (Counts{1, 3}));
  EXPECT_EQ(counts_of(cut_by_cost({{1, 1}, 0, 9}, 2)), (Counts{2, 0}));
  EXPECT_EQ(counts_of(cut_by_cost({{1, 1, 1, 1, 1}, 0, 0}, 4)), (Counts{2, 2, 1, 0}));  // fuller stages first
  EXPECT_EQ(counts_of(cut_by_cost({{}, 1, 1}, 3)), (Counts{0, 0, 0}));
}

/// All cuts, by recursion: the smallest bottleneck; among equal ones the cut with fuller stages first.
RC_GTEST_PROP(Stages, CutsByCostAreTheBestOfAll, ()) {
  ChainCosts costs;
  const std::int64_t blocks = any_of(0, 9);
  for (std::int64_t b = 0; b < blocks; ++b) costs.blocks.push_back(static_cast<double>(any_of(0, 6)));
  costs.embeddings = static_cast<double>(any_of(0, 8));
  costs.end = static_cast<double>(any_of(0, 8));
  const int stages = static_cast<int>(any_of(1, 6));
  double best = std::numeric_limits<double>::infinity();
  Counts best_counts, counts;
  const std::function<void(std::int64_t, double)> visit = [&](std::int64_t first, double before) {
    const std::size_t stage = counts.size();
    const bool last = stage + 1 == static_cast<std::size_t>(stages);
    for (std::int64_t end = last ? blocks : first; end <= blocks; ++end) {
      double cost = (stage == 0 ? costs.embeddings : 0) + (last ? costs.end : 0);
      for (std::int64_t b = first; b < end; ++b) cost += costs.blocks[static_cast<std::size_t>(b)];
      cost = std::max(cost, before);
      counts.push_back(end - first);
      if (!last) {
        visit(end, cost);
      } else if (cost < best || (cost == best && counts > best_counts)) {
        best = cost;
        best_counts = counts;
      }
      counts.pop_back();
    }
  };
  visit(0, 0);
  const auto parts = cut_by_cost(costs, stages);
  RC_ASSERT(is_chain(parts, blocks));
  RC_ASSERT(counts_of(parts) == best_counts);
}

double most_loaded(const std::vector<StagePart>& parts, const ChainCosts& costs, const std::vector<int>& rank_of) {
  std::vector<double> loads(rank_of.size(), 0);
  const std::vector<double> each = costs_of(parts, costs);
  for (std::size_t s = 0; s < each.size(); ++s) loads[static_cast<std::size_t>(rank_of[s])] += each[s];
  return *std::max_element(loads.begin(), loads.end());
}
double most_expensive(const std::vector<StagePart>& parts, const ChainCosts& costs) {
  const std::vector<double> each = costs_of(parts, costs);
  return *std::max_element(each.begin(), each.end());
}
void for_every_cut(std::int64_t blocks, std::size_t stages, const std::function<void(std::vector<StagePart>)>& visit) {
  Counts firsts;
  const std::function<void(std::int64_t)> go = [&](std::int64_t from) {
    if (firsts.size() + 1 == stages) return visit(cut_before(firsts, blocks));
    for (std::int64_t next = from; next <= blocks; ++next) {
      firsts.push_back(next);
      go(next);
      firsts.pop_back();
    }
  };
  go(0);
}
ChainCosts any_costs(std::int64_t blocks) {
  ChainCosts costs;
  const bool whole = any_of(0, 2) == 0;
  const auto cost = [&] {
    return whole ? static_cast<double>(any_of(0, 6)) : static_cast<double>(any_of(1, 1000)) / 7;
  };
  for (std::int64_t b = 0; b < blocks; ++b) costs.blocks.push_back(cost());
  if (any_of(0, 2) == 0) costs.embeddings = cost();
  if (any_of(0, 2) == 0) costs.end = 2 * cost();
  return costs;
}

/// Two stages per rank: the load of the most loaded rank is the smallest possible; among the cuts nearly as good, the
/// most expensive stage is the cheapest.
RC_GTEST_PROP(Stages, RanksOfTwoStagesAreBalanced, ()) {
  using schedule::Placement;
  const std::int64_t blocks = any_of(0, 8);
  const int ranks = static_cast<int>(any_of(1, 4));
  const ChainCosts costs = any_costs(blocks);
  for (const Placement placement : {Placement::loop, Placement::v}) {
    const std::vector<int> rank_of = schedule::place_stages(placement, ranks, 2);
    const auto parts = cut_by_cost(costs, rank_of);
    RC_ASSERT(is_chain(parts, blocks));
    double least = 1e300, least_stage = 1e300;
    for_every_cut(blocks, rank_of.size(),
                  [&](const auto& cut) { least = std::min(least, most_loaded(cut, costs, rank_of)); });
    for_every_cut(blocks, rank_of.size(), [&](const auto& cut) {
      if (most_loaded(cut, costs, rank_of) <= least * (1 + balance_tolerance) * (1 + 1e-11))
        least_stage = std::min(least_stage, most_expensive(cut, costs));
    });
    RC_ASSERT(most_loaded(parts, costs, rank_of) <= least * (1 + balance_tolerance) * (1 + 1e-9));
    RC_ASSERT(most_expensive(parts, costs) <= least_stage * (1 + 1e-9));
  }
}

/// Any other placement: never worse than a cut that considers stages only, and usually optimal.
TEST(Stages, RanksOfManyStagesAreBalanced) {
  int count = 0, best = 0;
  double ratios = 0;
  const bool held = rc::check("any placement", [&] {
    const std::int64_t blocks = any_of(1, 9);
    std::vector<int> rank_of = any_of(0, 2) == 0 ? std::vector{0, 1, 0, 1, 0, 1} : std::vector{0, 1, 1, 0, 0, 1};
    if (any_of(0, 3) == 0) rank_of = {1, 2, 0, 0, 1};
    const ChainCosts costs = any_costs(blocks);
    const auto parts = cut_by_cost(costs, rank_of);
    RC_ASSERT(is_chain(parts, blocks));
    const double mine = most_loaded(parts, costs, rank_of);
    RC_ASSERT(mine <= most_loaded(cut_by_cost(costs, static_cast<int>(rank_of.size())), costs, rank_of) *
                          (1 + balance_tolerance));
    double least = 1e300;
    for_every_cut(blocks, rank_of.size(),
                  [&](const auto& cut) { least = std::min(least, most_loaded(cut, costs, rank_of)); });
    if (least == 0) return;
    ++count;
    best += mine <= least * (1 + balance_tolerance + 1e-9);
    ratios += mine / least;
  });
  EXPECT_TRUE(held);
  EXPECT_GE(best, 0.8 * count) << count;
  EXPECT_LE(ratios / count, 1.04);
}

// Embedding and head each cost as much as three blocks. With one stage per rank the first and last rank carry them,
// with a V the first rank carries both, and in a loop the last rank has twice its share if only stages are considered.
TEST(Stages, CutsByCostForRanks) {
  const ChainCosts costs{{1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, 3, 3};
  EXPECT_EQ(counts_of(cut_by_cost(costs, {0, 1})), (Counts{5, 5}));
  EXPECT_EQ(counts_of(cut_by_cost(costs, {0, 1, 1, 0})), (Counts{1, 4, 4, 1}));
  EXPECT_EQ(most_loaded(cut_by_cost(costs, {0, 1, 0, 1}), costs, {0, 1, 0, 1}), 8);
  const ChainCosts head{{1, 1, 1, 1, 1, 1}, 0, 6};
  EXPECT_EQ(most_loaded(cut_by_cost(head, 4), head, {0, 1, 1, 0}), 12);
  EXPECT_EQ(most_loaded(cut_by_cost(head, {0, 1, 1, 0}), head, {0, 1, 1, 0}), 6);
  // The optimum for ranks alone would be loads of 0, 56 and 50, 104: an empty stage to save 3.7 % on one rank.
  EXPECT_EQ(counts_of(cut_by_cost({{6, 50, 50, 50, 50, 4}, 0, 0}, {0, 1, 1, 0})), (Counts{2, 1, 1, 2}));
  // The load of the first block's rank cannot be reduced; the rest is still divided evenly.
  EXPECT_EQ(counts_of(cut_by_cost({{9, 1, 1, 1, 1, 1, 1}, 0, 0}, {0, 1, 1, 0})), (Counts{1, 3, 3, 0}));
  EXPECT_EQ(error_of([] { (void)cut_by_cost({{1}, 0, 0}, {0, 2}); }),
            "rank 1 of 3 has no stage; every rank of a pipeline needs one");
  EXPECT_EQ(error_of([] { (void)cut_by_cost({{1}, 0, 0}, {0, -1}); }), "a stage is on rank -1; ranks start at 0");
  EXPECT_EQ(error_of([] { (void)cut_by_cost({{1}, 0, 0}, std::vector<int>()); }),
            "a model cannot be cut into 0 stages; possible are 1 to 65536");
}

// A search over pairs of blocks instead of all cuts of the chain, of which the larger model has a million times more:
// the time grows with the square of the number of blocks.
TEST(Stages, LargeModelsAreCutForRanksQuickly) {
  const auto model = [](int blocks) {
    ChainCosts costs;
    for (int b = 0; b < blocks; ++b) costs.blocks.push_back(1 + 0.1 * ((b * 7919) % 13));
    costs.end = 9;
    return costs;
  };
  const ChainCosts small = model(24), large = model(192);
  for (const auto placement : {schedule::Placement::loop, schedule::Placement::v}) {
    const auto rank_of = schedule::place_stages(placement, 8, 2);
    double all = large.end;
    for (const double cost : large.blocks) all += cost;
    double most = 0;
    const double grown = testing::growth([&] { (void)cut_by_cost(small, rank_of); },
                                         [&] { most = most_loaded(cut_by_cost(large, rank_of), large, rank_of); },
                                         testing::square_growth);
    EXPECT_LE(grown, testing::square_growth);
    EXPECT_LE(most, 1.06 * all / 8);
  }
}

TEST(Stages, LayoutsOfMegatronAreRead) {
  const auto read = [](const char* text) { return counts_of(parse_stage_layout(text, any_blocks, 0)); };
  EXPECT_EQ(read("EtL"), (Counts{1}));
  EXPECT_EQ(read("Ett|tt|ttL"), (Counts{2, 2, 2}));
  EXPECT_EQ(read("Et*3|(tt|)*2t|L"), (Counts{3, 2, 2, 1, 0}));
  EXPECT_EQ(read("E,tx3, | t x 10 |,L"), (Counts{3, 10, 0}));
  EXPECT_EQ(read("E|(t|)*3|L"), (Counts{0, 1, 1, 1, 0, 0}));
  EXPECT_EQ(read("E((t*2|)*2t|)*2L"), (Counts{2, 2, 1, 2, 2, 1, 0}));
  EXPECT_EQ(read("Et|*3L"), (Counts{1, 0, 0, 0}));
  EXPECT_EQ(read("(E)(()*9)t(L)"), (Counts{1}));
  const auto deepseek = parse_stage_layout("Et*3|(tt|)*29|L", 61, 32);
  EXPECT_TRUE(is_chain(deepseek, 61));
  EXPECT_EQ(deepseek[1].first_block, 3);
}

TEST(Stages, LayoutsThatAreWrongSayTheColumn) {
  const auto said = [](std::string_view text, std::int64_t blocks = any_blocks, int stages = 0) {
    const std::string error = error_of([&] { (void)parse_stage_layout(text, blocks, stages); });
    const std::size_t column = error.find("', column ");
    return column == std::string::npos ? error : error.substr(column + 3);
  };
  EXPECT_EQ(error_of([] { (void)parse_stage_layout("Et|qL", any_blocks, 0); }),
            "pipeline layout 'Et|qL', column 4: 'q' is unknown; the letters are E (embeddings), t (a block), a and f "
            "(its attention, its MLP), m (a depth of multi-token prediction), L (the end), | (next stage), ( ), and *N "
            "or xN (repeat the item before it)");
  EXPECT_EQ(said(""), "column 1: a layout must begin with E, the embeddings, in its first stage");
  EXPECT_EQ(said(" t|EtL"), "column 2: a layout must begin with E, the embeddings, in its first stage");
  EXPECT_EQ(said("Et|EtL"), "column 4: E, the embeddings, occurs a second time");
  EXPECT_EQ(said("E*3L"), "column 1: E, the embeddings, occurs a second time");
  EXPECT_EQ(said("Et(|L)*2"), "column 5: L, the end of the model, occurs a second time");
  EXPECT_EQ(said("EtLt"), "column 4: nothing may follow L, the end of the model, in the last stage");
  EXPECT_EQ(said("Et|L|"), "column 5: nothing may follow L, the end of the model, in the last stage");
  EXPECT_EQ(said("Et|t"), "column 5: a layout must end with L, the end of the model");
  EXPECT_EQ(said("Et|(t|L"), "column 4: this ( is not closed");
  EXPECT_EQ(said("Et|t)L"), "column 5: this ) closes no (");
  EXPECT_EQ(said("*3EtL"), "column 1: a repeat must follow a letter, | or ), and may occur only once there");
  EXPECT_EQ(said("Et*2*3L"), "column 5: a repeat must follow a letter, | or ), and may occur only once there");
  EXPECT_EQ(said("E(*3t)L"), "column 3: a repeat must follow a letter, | or ), and may occur only once there");
  for (const char* text : {"Et*L", "Et*0L", "Et*-1L", "Et*99999999999999999999L"})
    EXPECT_EQ(said(text), "column 3: a repeat needs a whole number of at least 1 after its *") << text;
  EXPECT_EQ(said("Eta|tL"),
            "column 3: a, a block's attention, must be followed by f, its MLP, here or in a later stage");
  EXPECT_EQ(said("Eta|aL"),
            "column 3: a, a block's attention, must be followed by f, its MLP, here or in a later stage");
  EXPECT_EQ(said("Eta|L"),
            "column 3: a, a block's attention, must be followed by f, its MLP, here or in a later stage");
  EXPECT_EQ(said("Et|ftL"), "column 4: f, a block's MLP, must follow a, its attention");
  EXPECT_EQ(said("Eta|fL", 3), "column 6: there are 2 blocks (t) up to here, but the model has 3; add 1");
  EXPECT_EQ(said("Et|tL", 3, 2), "column 5: there are 2 blocks (t) up to here, but the model has 3; add 1");
  EXPECT_EQ(said("Et*4|tL", 3, 2), "column 7: there are 5 blocks (t) up to here, but the model has 3; remove 2");
  EXPECT_EQ(said("EtL", 1, 2), "column 3: there are 1 stage up to here, but the run has 2; add 1 |");
  EXPECT_EQ(said("Et|||L", 1, 2), "column 6: there are 4 stages up to here, but the run has 2; remove 2 |");
}

/// Depths need the last norm and the head. Megatron-LM's DeepSeek-V3 gives them a stage of their own.
TEST(Stages, DepthsAreInTheLastStage) {
  const auto said = [](std::string_view text, std::int64_t depths = any_depths) {
    const std::string error = error_of([&] { (void)parse_stage_layout(text, any_blocks, 0, depths); });
    const std::size_t column = error.find("', column ");
    return column == std::string::npos ? error : error.substr(column + 3);
  };
  for (const char* text : {"Ett|tmmL", "Ett|t(m)*2L", "Ett|tmx2L", "Ett|t,m,m,L"}) {
    EXPECT_EQ(parse_stage_layout(text, 3, 2, 2), parse_stage_layout("Ett|tL", 3, 2)) << text;
    EXPECT_EQ(parse_stage_layout(text, 3, 2), parse_stage_layout("Ett|tL", 3, 2)) << text;
  }
  EXPECT_EQ(said("Ett|tL", 2), "") << "the stage has them whether or not the layout names them";
  EXPECT_EQ(counts_of(parse_stage_layout("EttmL", 2, 1, 1)), (Counts{2}));
  EXPECT_EQ(stage_layout(parse_stage_layout("Ett|tmmmL", 3, 2, 3), 3), "Ett|tm*3L");
  EXPECT_EQ(stage_layout(parse_stage_layout("Ett|mL", 2, 2, 1), 1), "Ett|mL");
  const std::string where =
      "m, a depth of multi-token prediction, needs the last norm and the head, so it belongs to the last stage with L, "
      "after all blocks; the nearest layout is ";
  EXPECT_EQ(said("Ett|tm|L"), "column 6: " + where + "Ett|t|mL");
  EXPECT_EQ(said("Etm|tL"), "column 3: " + where + "Et|tmL");
  EXPECT_EQ(said("Et|mtL"), "column 4: " + where + "Et|tmL");
  EXPECT_EQ(said("Et|tm|mL"), "column 5: " + where + "Et|t|mmL");
  EXPECT_EQ(said("Eta|mfL"), "column 5: " + where + "Eta|fmL");
  EXPECT_EQ(said("Et|tmmL", 1),
            "column 5: there are 2 depths of multi-token prediction (m) from here on, but the model has "
            "mtp_num_layers 1; the nearest layout is Et|tmL");
  EXPECT_EQ(said("Et|tmL", 0),
            "column 5: there is 1 depth of multi-token prediction (m) from here on, but the model has none "
            "(mtp_num_layers); the nearest layout is Et|tL");
  EXPECT_EQ(said("Et|tLm"), "column 6: nothing may follow L, the end of the model, in the last stage");
  EXPECT_EQ(said("Et|tm*17L"), "column 5: there are more than 16 depths of multi-token prediction (m), the maximum");
}

TEST(Stages, DepthsOfMegatronMoveToTheLastStage) {
  const MegatronLayout own = parse_megatron_layout("Et*3|(tt|)*29,m|L", 61, 32);
  EXPECT_TRUE(own.moved && own.depths == 1 && is_chain(own.parts, 61));
  EXPECT_EQ(own.parts[30], (StagePart{false, false, 61, 0})) << "their former stage is left empty";
  EXPECT_TRUE(stage_layout(own.parts, own.depths).ends_with("|tt||mL"));
  EXPECT_EQ(parse_stage_layout(stage_layout(own.parts, own.depths), 61, 32, 1), own.parts);
  const MegatronLayout with_blocks = parse_megatron_layout("Et|tmm|L", 2, 3),
                       there = parse_megatron_layout("Et|mL", 1, 2);
  EXPECT_EQ(stage_layout(with_blocks.parts, with_blocks.depths), "Et|t|mmL");
  EXPECT_TRUE(with_blocks.moved && !there.moved);
  EXPECT_EQ(there.depths, 1);
  EXPECT_FALSE(parse_megatron_layout("Et|tL", 2, 2).moved);
  for (const char* text : {"Etm|t|L", "Et|m|tL", "Et|m|mL", "Et|m||L"})
    EXPECT_NE(error_of([&] { (void)parse_megatron_layout(text, any_blocks, 0); }).find("the nearest layout is Et|"),
              std::string::npos)
        << text;
}

TEST(Stages, BlocksAreCutBetweenAttentionAndMlp) {
  const auto parts = parse_stage_layout("Etta|ft|a||fL", 5, 5);
  EXPECT_EQ(parts[0], (StagePart{true, false, 0, 3, false, true}));
  EXPECT_EQ(parts[1], (StagePart{false, false, 2, 2, true, false}));
  EXPECT_EQ(parts[2], (StagePart{false, false, 4, 1, false, true}));
  EXPECT_EQ(parts[3].blocks, 0);
  EXPECT_EQ(parts[4], (StagePart{false, true, 4, 1, true, false}));
  EXPECT_TRUE(parts[0].attention_of(2) && !parts[0].mlp_of(2) && parts[0].mlp_of(1) && !parts[0].attention_of(3));
  EXPECT_TRUE(parts[1].mlp_of(2) && !parts[1].attention_of(2) && parts[1].attention_of(3) && parts[1].mlp_of(3));
  EXPECT_FALSE(parts[3].attention_of(4) || parts[3].mlp_of(4) || parts[3].attention_of(5));
  EXPECT_EQ(text_of(parts[0]), "embeddings, blocks 0-1, attention of block 2");
  EXPECT_EQ(text_of(parts[1]), "MLP of block 2, block 3");
  EXPECT_EQ(text_of(parts[4]), "MLP of block 4, end");
  EXPECT_EQ(parse_stage_layout("Et|afL", 2, 2), parse_stage_layout("Et|tL", 2, 2))
      << "both halves together are a block";
  EXPECT_TRUE(cuts_blocks(parts));
  EXPECT_FALSE(cuts_blocks(cut_evenly(5, 2)));
  EXPECT_EQ(stage_layout(with_whole_blocks(parts)), "Et*3|t|t||L");
  EXPECT_NE(error_of([] { (void)parts_of_halves({2, 1}); }).find("the last block has no MLP"), std::string::npos);
  EXPECT_NE(error_of([] { (void)parts_of_halves({3, -1}); }).find("cannot have -1 halves"), std::string::npos);
}

RC_GTEST_PROP(Stages, HalvesAreRunOnceInOrder, ()) {
  Counts halves(static_cast<std::size_t>(any_of(1, 8)));
  for (std::int64_t& count : halves) count = any_of(0, 7);
  std::int64_t sum = 0;
  for (const std::int64_t count : halves) sum += count;
  if (sum % 2 == 1) ++halves.back(), ++sum;
  const auto parts = parts_of_halves(halves);
  std::int64_t next = 0;  // 2 b: the attention of block b, 2 b + 1: its MLP
  for (std::size_t s = 0; s < parts.size(); ++s) {
    std::int64_t own = 0;
    for (std::int64_t block = 0; block < sum / 2; ++block)
      for (const bool has : {parts[s].attention_of(block), parts[s].mlp_of(block)}) own += has ? 1 : 0;
    RC_ASSERT(own == halves[s]);
    for (std::int64_t i = next; i < next + halves[s]; ++i)
      RC_ASSERT((i % 2 == 0 ? parts[s].attention_of(i / 2) : parts[s].mlp_of(i / 2)));
    next += halves[s];
  }
  RC_ASSERT(parse_stage_layout(stage_layout(parts), sum / 2, static_cast<int>(parts.size())) == parts);
  const auto whole = with_whole_blocks(parts);
  std::int64_t blocks = 0;
  for (const StagePart& part : whole) blocks += part.blocks;
  RC_ASSERT(blocks == sum / 2 && !cuts_blocks(whole));
}

TEST(Stages, LayoutsCannotExplode) {
  const auto said = [](const std::string& text) {
    return error_of([&] { (void)parse_stage_layout(text, any_blocks, 0); });
  };
  EXPECT_NE(said("Et*1000000000000L").find("more than 65536 blocks"), std::string::npos);
  EXPECT_NE(said("E(((t*999)*999)*999)*999L").find("more than 65536 blocks"), std::string::npos);
  EXPECT_NE(said("E((t|)*60000)*60000L").find("more than 65536"), std::string::npos);
  EXPECT_NE(said("E|*9000000000L").find("more than 65536 stages"), std::string::npos);
  EXPECT_EQ(said("E(()*9000000000000000000)*9000000000000000000L"), "");
  EXPECT_EQ(said("E" + std::string(200000, '(') + "t" + std::string(200000, ')') + "L"), "");
  EXPECT_EQ(counts_of(parse_stage_layout("Et*65536L", 65536, 1)), (Counts{65536}));
}

RC_GTEST_PROP(Stages, LayoutsReadBack, ()) {
  const std::int64_t blocks = any_of(0, 80);
  const int stages = static_cast<int>(any_of(1, 12));
  Counts firsts;
  for (int s = 1; s < stages; ++s) firsts.push_back(any_of(0, blocks + 1));
  std::sort(firsts.begin(), firsts.end());
  const auto parts = cut_before(firsts, blocks);
  RC_ASSERT(is_chain(parts, blocks));
  RC_ASSERT(parse_stage_layout(stage_layout(parts), blocks, stages) == parts);
}

/// Any text gives a chain or an InputError.
RC_GTEST_PROP(Stages, AnyTextIsReadOrRefused, ()) {
  std::string text = "E";
  const std::int64_t size = any_of(0, 40);
  for (std::int64_t i = 0; i < size; ++i)
    text += *rc::gen::element('t', 't', '|', '(', ')', '*', '9', '3', ',', 'L', 'm');
  if (any_of(0, 2) == 0) text += "L";
  const std::string error = error_of([&] {
    const auto parts = parse_stage_layout(text, any_blocks, 0);
    RC_ASSERT(is_chain(parts, parts.back().past_block()));
    RC_ASSERT(parse_stage_layout(stage_layout(parts), any_blocks, 0) == parts);
    const std::int64_t depths = parse_megatron_layout(text, any_blocks, 0).depths;
    RC_ASSERT(parse_stage_layout(stage_layout(parts, depths), any_blocks, 0, depths) == parts);
  });
  RC_CLASSIFY(error.empty(), "read");
}

TEST(Stages, CutsBeforeNamedBlocks) {
  EXPECT_EQ(counts_of(cut_before({4, 8, 12}, 16)), (Counts{4, 4, 4, 4}));
  EXPECT_EQ(counts_of(cut_before({0, 3, 3, 5}, 5)), (Counts{0, 3, 0, 2, 0}));
  EXPECT_EQ(counts_of(cut_before({}, 5)), (Counts{5}));
  EXPECT_EQ(
      error_of([] { (void)cut_before({4, 3}, 8); }),
      "stage 2 cannot begin with block 3: stage 1 begins with 4, so it must be from there to 8 (8: the end alone)");
  EXPECT_EQ(error_of([] { (void)cut_before({9}, 8); }),
            "stage 1 cannot begin with block 9: it must be from 0 to 8 (8: the end alone)");
}

TEST(Stages, LayoutsAreWritten) {
  EXPECT_EQ(stage_layout(parse_stage_layout("Et*3|(tt|)*2t|L", any_blocks, 0)), "Et*3|tt|tt|t|L");
}

}  // namespace
}  // namespace tessera::layout
