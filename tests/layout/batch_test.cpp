// tessera/layout/batch: shares of ranks with unequal speed, rebalancing, growing batches, batches of tokens.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/layout/batch/balancer.h>
#include <tessera/layout/batch/ramp.h>
#include <tessera/layout/batch/token_batches.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

namespace tessera::layout {
namespace {

using Shares = std::vector<std::int64_t>;

std::vector<RankSpeed> some_speeds(std::size_t ranks, std::int64_t least) {
  std::vector<RankSpeed> speeds;
  for (std::size_t r = 0; r < ranks; ++r)
    speeds.push_back({.seconds_per_row = *rc::gen::inRange(1, 12) * 0.25,
                      .fixed_seconds = *rc::gen::inRange(0, 9) * 0.5,
                      .most = *rc::gen::element<std::int64_t>(INT64_MAX, least + *rc::gen::inRange(0, 6))});
  return speeds;
}

/// The best of all ways to share the rows, by brute force.
double best_by_force(const std::vector<RankSpeed>& speeds, std::int64_t rows, std::int64_t least) {
  double best = std::numeric_limits<double>::infinity();
  Shares shares;
  const std::function<void(std::int64_t)> next = [&](std::int64_t left) {
    const std::size_t r = shares.size();
    if (r == speeds.size()) {
      if (left == 0) best = std::min(best, slowest_seconds(speeds, shares));
      return;
    }
    for (std::int64_t n = least; n <= std::min(left, speeds[r].most); ++n) {
      shares.push_back(n);
      next(left - n);
      shares.pop_back();
    }
  };
  next(rows);
  return best;
}

RC_GTEST_PROP(BatchShares, AreTheBestOfAllWithinTheirBounds, ()) {
  const auto ranks = static_cast<std::size_t>(*rc::gen::inRange(1, 5));
  const std::int64_t least = *rc::gen::inRange(0, 3);
  const std::int64_t rows = least * static_cast<std::int64_t>(ranks) + *rc::gen::inRange(1, 12);
  const auto speeds = some_speeds(ranks, least);
  const double best = best_by_force(speeds, rows, least);
  if (std::isinf(best)) {
    RC_ASSERT_THROWS_AS(batch_shares(speeds, rows, least), InputError);
    return;
  }
  const Shares shares = batch_shares(speeds, rows, least);
  RC_ASSERT(std::accumulate(shares.begin(), shares.end(), std::int64_t{0}) == rows);
  for (std::size_t r = 0; r < ranks; ++r) RC_ASSERT(shares[r] >= least && shares[r] <= speeds[r].most);
  RC_ASSERT(std::abs(slowest_seconds(speeds, shares) - best) < 1e-9);
}

TEST(BatchShares, FollowSpeed) {
  EXPECT_EQ(batch_shares({{1}, {2}}, 30, 1), (Shares{20, 10}));
  EXPECT_EQ(batch_shares({{1}, {3}}, 16, 1), (Shares{12, 4}));
  EXPECT_EQ(batch_shares({{1}, {1}, {1}, {2}}, 28, 1), (Shares{8, 8, 8, 4}));
  EXPECT_EQ(batch_shares({{1, 0, 15}, {2}}, 30, 1), (Shares{15, 15})) << "memory limits the fast rank";
  EXPECT_EQ(batch_shares({{1}, {1000}}, 10, 2), (Shares{8, 2})) << "each micro-batch needs a row";
  EXPECT_EQ(batch_shares({{1e-3}, {2e-3}}, 3'000'000'000, 1), (Shares{2'000'000'000, 1'000'000'000}));
}

RC_GTEST_PROP(BatchShares, EveryRowLiesInOneMicroBatchOfOneRank, ()) {
  const auto ranks = static_cast<std::size_t>(*rc::gen::inRange(1, 6));
  const std::int64_t micro_batches = *rc::gen::inRange(1, 5);
  const auto shares = *rc::gen::container<Shares>(ranks, rc::gen::inRange<std::int64_t>(micro_batches, 20));
  std::int64_t next = 0;
  for (std::int64_t micro = 0; micro < micro_batches; ++micro)
    for (std::int64_t rank = 0; rank < static_cast<std::int64_t>(ranks); ++rank) {
      const RowRange range = rows_of_micro_batch(shares, micro_batches, micro, rank);
      RC_ASSERT(range.begin == next);
      RC_ASSERT(range.count >= 1);
      next += range.count;
    }
  RC_ASSERT(next == std::accumulate(shares.begin(), shares.end(), std::int64_t{0}));
}

/// Runs `steps` steps on ranks of the given speeds, with each rank's time multiplied by `noise`(step, rank).
std::int64_t run_steps(BatchBalancer& balancer, const std::vector<double>& seconds_per_row, std::int64_t rows,
                       int steps, const std::function<double(int, std::size_t)>& noise) {
  const Shares unbounded(seconds_per_row.size(), INT64_MAX);
  for (int step = 0; step < steps; ++step) {
    const Shares shares = balancer.shares(rows, 1);
    std::vector<double> seconds;
    for (std::size_t r = 0; r < shares.size(); ++r)
      seconds.push_back(static_cast<double>(shares[r]) * seconds_per_row[r] * noise(step, r));
    balancer.measured(shares, seconds, unbounded, 1);
  }
  return balancer.changes();
}

double no_noise(int, std::size_t) { return 1; }

TEST(BatchBalancer, SettlesOnceAndStays) {
  BatchBalancer balancer(2);
  EXPECT_EQ(balancer.shares(30, 1), (Shares{15, 15}));
  EXPECT_EQ(run_steps(balancer, {1, 2}, 30, 50, no_noise), 1);
  EXPECT_EQ(balancer.shares(30, 1), (Shares{20, 10}));
}

TEST(BatchBalancer, FollowsAChangeOfSpeed) {
  BatchBalancer balancer(3);
  run_steps(balancer, {1, 1, 3}, 28, 10, no_noise);
  EXPECT_EQ(balancer.shares(28, 1), (Shares{12, 12, 4}));
  run_steps(balancer, {1, 1, 1}, 30, 10, no_noise);
  EXPECT_EQ(balancer.shares(30, 1), (Shares{10, 10, 10}));
}

TEST(BatchBalancer, DoesNotFollowNoiseOrSmallGains) {
  BatchBalancer even(2);
  EXPECT_EQ(run_steps(even, {1, 1.04}, 1000, 50, no_noise), 0) << "the gain would be 2 %";
  BatchBalancer disturbed(2);
  const auto outliers = [](int step, std::size_t r) { return step % 5 == static_cast<int>(r) ? 3.0 : 1.0; };
  EXPECT_EQ(run_steps(disturbed, {1, 1}, 1000, 100, outliers), 0);
}

TEST(BatchBalancer, SettlesWhereTimeIsNotProportionalToRows) {
  BatchBalancer balancer(2);
  const Shares unbounded(2, INT64_MAX);
  Shares shares;
  for (int step = 0; step < 60; ++step) {  // 10 + n against 4 n seconds: with 54 and 16 of 70 rows both finish together
    shares = balancer.shares(70, 1);
    balancer.measured(shares, {10.0 + static_cast<double>(shares[0]), 4.0 * static_cast<double>(shares[1])}, unbounded,
                      1);
  }
  EXPECT_NEAR(static_cast<double>(shares[0]), 54, 1);
}

TEST(BatchBalancer, ResumesWithItsSpeeds) {
  BatchBalancer balancer(2);
  run_steps(balancer, {1, 3}, 40, 10, no_noise);
  EXPECT_EQ(BatchBalancer(2, balancer.seconds_per_row()).shares(40, 1), (Shares{30, 10}));
  EXPECT_EQ(BatchBalancer(4, balancer.seconds_per_row()).shares(40, 1), (Shares{10, 10, 10, 10})) << "other ranks";
  EXPECT_EQ(BatchBalancer(2, {1, -1}).shares(40, 1), (Shares{20, 20}));
}

TEST(BatchBalancer, MemoryBoundsWhatAFastRankGets) {
  BatchBalancer balancer(2);
  for (int step = 0; step < 20; ++step) {
    const Shares shares = balancer.shares(30, 1);
    balancer.measured(shares, {static_cast<double>(shares[0]), 5.0 * static_cast<double>(shares[1])}, {18, 100}, 1);
  }
  EXPECT_EQ(balancer.shares(30, 1), (Shares{18, 12}));
}

TEST(BatchRamp, GrowsInEqualParts) {
  const BatchRamp ramp = parse_batch_ramp("16, 8 ,300");  // 16, 24, 32, 40: three parts of 100 rows
  EXPECT_EQ(ramp, (BatchRamp{16, 8, 300}));
  EXPECT_EQ(ramp_rows(ramp, 40, 0), 16);
  EXPECT_EQ(ramp_rows(ramp, 40, 99), 16);
  EXPECT_EQ(ramp_rows(ramp, 40, 100), 24);
  EXPECT_EQ(ramp_rows(ramp, 40, 299), 32);
  EXPECT_EQ(ramp_rows(ramp, 40, 300), 40);
  EXPECT_EQ(ramp_rows({8, 8, 0}, 40, 0), 40);
  EXPECT_EQ(ramp_rows({40, 8, 300}, 40, 0), 40);
  EXPECT_NO_THROW(check_batch_ramp(ramp, 40, 4));
}

TEST(BatchRamp, HasTheRowsOfAList) {
  const BatchRamp list = parse_batch_ramp("0:16, 100:24  0.2K:48");
  EXPECT_EQ(list.steps, (std::vector<BatchStep>{{0, 16}, {100, 24}, {200, 48}}));
  EXPECT_EQ(ramp_rows(list, 48, 0), 16);
  EXPECT_EQ(ramp_rows(list, 48, 99), 16);
  EXPECT_EQ(ramp_rows(list, 48, 100), 24);
  EXPECT_EQ(ramp_rows(list, 48, 199), 24);
  EXPECT_EQ(ramp_rows(list, 48, 200), 48);
  EXPECT_EQ(ramp_rows(list, 48, 1'000'000), 48);
  EXPECT_NO_THROW(check_batch_ramp(list, 48, 8));
  EXPECT_EQ(parse_batch_ramp("0:384 200B:768 1.5T:1152").steps,
            (std::vector<BatchStep>{{0, 384}, {200'000'000'000, 768}, {1'500'000'000'000, 1152}}));
  for (const char* text : {"0:16 100:24", "16,8,300"}) EXPECT_EQ(to_text(parse_batch_ramp(text)), text);
}

TEST(BatchRamp, SaysWhatIsWrong) {
  const auto problem = [](const std::function<void()>& act) -> std::string {
    try {
      act();
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  EXPECT_TRUE(has(problem([] { parse_batch_ramp("1,2"); }), "has 2 numbers"));
  EXPECT_TRUE(has(problem([] { parse_batch_ramp("1,x,3"); }), "'x' is not a whole number"));
  EXPECT_TRUE(has(problem([] { parse_batch_ramp("0,2,3"); }), "at least 1"));
  for (const char* text : {"0:8 x:16", "0:8 100", "0:8 100:0", "0:8 -1:16", "0:8 9999T:16"})
    EXPECT_TRUE(has(problem([&] { parse_batch_ramp(text); }), "is not AFTER:ROWS")) << text;
  EXPECT_TRUE(has(problem([] { parse_batch_ramp("5:8 100:16"); }), "must start at 0"));
  for (const char* text : {"0:8 100:16 100:24", "0:8 100:16 200:16"})
    EXPECT_TRUE(has(problem([&] { parse_batch_ramp(text); }), "than 100:16 before it")) << text;
  const BatchRamp list = parse_batch_ramp("0:8 100:16");
  EXPECT_TRUE(
      has(problem([&] { check_batch_ramp(list, 32, 1); }), "ends with 16 rows per step, but the full batch has 32"));
  EXPECT_TRUE(has(problem([&] { check_batch_ramp(list, 16, 16); }), "8 is not a multiple of the 16 processes"));
  EXPECT_TRUE(has(problem([] { check_batch_ramp({64, 8, 1}, 32, 1); }), "more than the full batch of 32"));
  EXPECT_TRUE(has(problem([] { check_batch_ramp({8, 10, 1}, 32, 1); }), "24 is not a multiple of 10"));
  EXPECT_TRUE(has(problem([] { check_batch_ramp({8, 8, 1}, 32, 3); }), "multiples of the 3 processes"));
}

TokenBudget some_budget() {
  return {.tokens = *rc::gen::inRange(40, 200),
          .micro_batches = *rc::gen::inRange(1, 7),
          .quadratic = *rc::gen::inRange(0, 5) * 0.01};
}

double dearest(const std::vector<TokenBatch>& batches) {
  double most = 0;
  for (const TokenBatch& batch : batches) most = std::max(most, batch.cost);
  return most;
}

RC_GTEST_PROP(TokenBatches, HoldEveryRowOnceWithinTheBudget, ()) {
  const TokenBudget budget = some_budget();
  const auto lengths = *rc::gen::container<Shares>(40, rc::gen::inRange<std::int64_t>(1, 41));
  const auto batches = cut_step(lengths, budget);
  if (batches.empty()) return;
  RC_ASSERT(static_cast<std::int64_t>(batches.size()) == budget.micro_batches);
  std::set<std::int64_t> rows, firsts;
  for (const TokenBatch& batch : batches) {
    RC_ASSERT(!batch.rows.empty());
    RC_ASSERT(static_cast<std::int64_t>(batch.rows.size()) * batch.longest <= budget.tokens);
    for (const std::int64_t row : batch.rows) {
      RC_ASSERT(rows.insert(row).second);
      RC_ASSERT(lengths[static_cast<std::size_t>(row)] <= batch.longest);
    }
    for (std::size_t i = 0; i < batch.rows.size(); ++i)
      RC_ASSERT(firsts.insert(batch.first + static_cast<std::int64_t>(i)).second);
  }
  RC_ASSERT(rows.size() == lengths.size());
}

/// The cost of the most expensive micro-batch under the best of all ways to cut sorted rows.
double best_cut(const Shares& sorted, const TokenBudget& budget, std::size_t begin, std::int64_t left) {
  if (begin == sorted.size()) return left == 0 ? 0 : std::numeric_limits<double>::infinity();
  if (left == 0) return std::numeric_limits<double>::infinity();
  double best = std::numeric_limits<double>::infinity();
  const auto longest = static_cast<double>(sorted[begin]);
  for (std::size_t rows = 1; begin + rows <= sorted.size(); ++rows) {
    if (static_cast<std::int64_t>(rows) * sorted[begin] > budget.tokens) break;
    const double cost = static_cast<double>(rows) * (longest + budget.quadratic * longest * longest);
    best = std::min(best, std::max(cost, best_cut(sorted, budget, begin + rows, left - 1)));
  }
  return best;
}

RC_GTEST_PROP(TokenBatches, TheDearestIsAsCheapAsCanBe, ()) {
  TokenBudget budget = some_budget();
  budget.micro_batches = *rc::gen::inRange(1, 5);
  auto lengths = *rc::gen::container<Shares>(static_cast<std::size_t>(*rc::gen::inRange(4, 11)),
                                             rc::gen::inRange<std::int64_t>(1, 41));
  const auto batches = cut_step(lengths, budget);
  std::sort(lengths.begin(), lengths.end(), std::greater<>());
  const double best = best_cut(lengths, budget, 0, budget.micro_batches);
  RC_ASSERT(batches.empty() == std::isinf(best));
  if (!batches.empty()) RC_ASSERT(std::abs(dearest(batches) - best) < 1e-6 * best);
}

RC_GTEST_PROP(TokenBatches, AStepTakesAsManyRowsAsFit, ()) {
  const TokenBudget budget = some_budget();
  const auto seed = *rc::gen::inRange<std::int64_t>(1, 1000);
  const auto length = [=](std::int64_t i) { return 1 + (i * 7919 + seed) * 31 % 37; };
  TokenSteps steps(budget, 37, length, 5, 100);
  RC_ASSERT(steps.begin(5) == 100);
  for (std::int64_t step = 5; step < 9; ++step) {
    Shares lengths;
    for (std::int64_t i = steps.begin(step); i < steps.begin(step + 1); ++i) lengths.push_back(length(i));
    RC_ASSERT(!cut_step(lengths, budget).empty());
    lengths.push_back(length(steps.begin(step + 1)));
    RC_ASSERT(cut_step(lengths, budget).empty());
  }
  TokenSteps resumed(budget, 37, length, 7, steps.begin(7));
  RC_ASSERT(resumed.begin(9) == steps.begin(9));
}

RC_GTEST_PROP(TokenBatches, RanksShareTheMicroBatches, ()) {
  const std::int64_t ranks = *rc::gen::inRange(1, 5), each = *rc::gen::inRange(1, 5);
  std::set<std::size_t> taken;
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const auto own = batches_of_rank(static_cast<std::size_t>(ranks * each), ranks, rank);
    RC_ASSERT(static_cast<std::int64_t>(own.size()) == each);
    taken.insert(own.begin(), own.end());
  }
  RC_ASSERT(static_cast<std::int64_t>(taken.size()) == ranks * each);
}

TEST(TokenBatches, RefusesRowsBeyondTheBudget) {
  EXPECT_THROW(TokenSteps({.tokens = 100, .micro_batches = 2}, 101, [](std::int64_t) { return 1; }, 0, 0), InputError);
}

}  // namespace
}  // namespace tessera::layout
