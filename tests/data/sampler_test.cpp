#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include <tessera/base/error.h>
#include <tessera/data/dataset.h>

namespace tessera::data {
namespace {

std::vector<std::int64_t> epoch_order(const Sampler& sampler, std::int64_t size, std::int64_t epoch) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < size; ++i) order.push_back(sampler(epoch * size + i));
  return order;
}

TEST(Sampler, SequentialIsFileOrderRepeating) {
  const Sampler sampler("sequential", 3, 42);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(sampler(i), i % 3);
}

TEST(Sampler, EveryEpochIsAPermutation) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const auto size = *rc::gen::inRange<std::int64_t>(1, 3000);
    const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
    auto order = epoch_order(Sampler("random", size, seed), size, epoch);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < size; ++i) RC_ASSERT(order[static_cast<std::size_t>(i)] == i);
  }));
}

// A resumed run must see the order that it saw before: these values may never change.
TEST(Sampler, OrderIsFixedForever) {
  EXPECT_EQ(epoch_order(Sampler("random", 10, 42), 10, 0), (std::vector<std::int64_t>{0, 4, 1, 6, 5, 2, 3, 9, 7, 8}));
  EXPECT_EQ(epoch_order(Sampler("random", 10, 42), 10, 1), (std::vector<std::int64_t>{2, 3, 6, 9, 8, 0, 1, 5, 7, 4}));
  EXPECT_EQ(Sampler("random", 1'000'000'007, 1)(123'456'789), 717'432'052);
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  const Sampler sampler("random", 1000, 7);
  const auto first = epoch_order(sampler, 1000, 0);
  for (const auto& other : {epoch_order(sampler, 1000, 1), epoch_order(Sampler("random", 1000, 8), 1000, 0)}) {
    std::int64_t same = 0;
    for (std::size_t i = 0; i < other.size(); ++i) same += first[i] == other[i];
    EXPECT_LT(same, 12);  // expected 1, Poisson
  }
}

// Chi-square statistics with k degrees of freedom stay below k + 6 sqrt(2k); all keys here are fixed, so this cannot
// flake.
double limit(double degrees) { return degrees + 6 * std::sqrt(2 * degrees); }

TEST(Sampler, AllPermutationsOfFourAreEquallyLikely) {
  std::map<std::vector<std::int64_t>, int> counts;
  constexpr int kTrials = 24 * 500;
  const Sampler sampler("random", 4, 3);
  for (int trial = 0; trial < kTrials; ++trial) ++counts[epoch_order(sampler, 4, trial)];
  ASSERT_EQ(counts.size(), 24u);
  double chi = 0;
  for (const auto& [order, count] : counts) chi += (count - 500.0) * (count - 500.0) / 500;
  EXPECT_LT(chi, limit(23));
}

TEST(Sampler, EveryBlockIsEquallyLikelyAtEveryPosition) {
  for (const std::int64_t size : {2, 3, 7, 10, 17}) {
    constexpr int kTrials = 5000;
    std::vector<std::vector<int>> counts(static_cast<std::size_t>(size),
                                         std::vector<int>(static_cast<std::size_t>(size)));
    for (int trial = 0; trial < kTrials; ++trial) {
      const Sampler sampler("random", size, static_cast<std::uint64_t>(trial));
      for (std::int64_t i = 0; i < size; ++i)
        ++counts[static_cast<std::size_t>(i)][static_cast<std::size_t>(sampler(i))];
    }
    double chi = 0;
    const double expected = static_cast<double>(kTrials) / static_cast<double>(size);
    for (const auto& row : counts) {
      for (const int count : row) chi += (count - expected) * (count - expected) / expected;
    }
    EXPECT_LT(chi, limit(static_cast<double>((size - 1) * (size - 1)))) << size;
  }
}

TEST(Sampler, NeighboursAreUncorrelated) {
  constexpr std::int64_t kSize = 20000;
  const auto order = epoch_order(Sampler("random", kSize, 11), kSize, 0);
  for (const std::size_t lag : {1, 2, 141, 142, 1000}) {  // 142: the base of the cipher's digits
    double sum = 0;
    const double mean = (kSize - 1) / 2.0, variance = (static_cast<double>(kSize) * kSize - 1) / 12;
    for (std::size_t i = 0; i + lag < order.size(); ++i) {
      sum += (static_cast<double>(order[i]) - mean) * (static_cast<double>(order[i + lag]) - mean);
    }
    const double count = static_cast<double>(order.size() - lag);
    EXPECT_LT(std::abs(sum / count / variance), 4 / std::sqrt(count)) << lag;
  }
}

TEST(Sampler, HugeDatasetsAndBadArguments) {
  const std::int64_t huge = std::int64_t{1} << 62;
  const Sampler sampler("random", huge, 5);
  for (std::int64_t i : {std::int64_t{0}, huge - 1, huge, huge + 12345}) {
    EXPECT_GE(sampler(i), 0);
    EXPECT_LT(sampler(i), huge);
  }
  EXPECT_EQ(Sampler("random", 1, 5)(17), 0);
  EXPECT_THROW(Sampler("shuffled", 10, 5), InputError);
  EXPECT_THROW(Sampler("random", 0, 5), InputError);
  EXPECT_THROW(sampler(-1), Error);
}

}  // namespace
}  // namespace tessera::data
