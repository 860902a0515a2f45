#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <iterator>
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
  const Sampler sampler(SamplingStrategy::sequential, 3, 42);
  for (std::int64_t i = 0; i < 10; ++i) EXPECT_EQ(sampler(i), i % 3);
}

TEST(Sampler, EveryEpochIsAPermutation) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const auto size = *rc::gen::inRange<std::int64_t>(1, 3000);
    const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
    auto order = epoch_order(Sampler(SamplingStrategy::random, size, seed), size, epoch);
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < size; ++i) RC_ASSERT(order[static_cast<std::size_t>(i)] == i);
  }));
}

// A resumed run must see the same order as before: these values may never change.
TEST(Sampler, OrderIsFixedForever) {
  EXPECT_EQ(epoch_order(Sampler(SamplingStrategy::random, 10, 42), 10, 0),
            (std::vector<std::int64_t>{0, 4, 1, 6, 5, 2, 3, 9, 7, 8}));
  EXPECT_EQ(epoch_order(Sampler(SamplingStrategy::random, 10, 42), 10, 1),
            (std::vector<std::int64_t>{2, 3, 6, 9, 8, 0, 1, 5, 7, 4}));
  EXPECT_EQ(Sampler(SamplingStrategy::random, 1'000'000'007, 1)(123'456'789), 717'432'052);
}

TEST(Sampler, EpochsAndSeedsDiffer) {
  const Sampler sampler(SamplingStrategy::random, 1000, 7);
  const auto first = epoch_order(sampler, 1000, 0);
  for (const auto& other :
       {epoch_order(sampler, 1000, 1), epoch_order(Sampler(SamplingStrategy::random, 1000, 8), 1000, 0)}) {
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
  const Sampler sampler(SamplingStrategy::random, 4, 3);
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
      const Sampler sampler(SamplingStrategy::random, size, static_cast<std::uint64_t>(trial));
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
  const auto order = epoch_order(Sampler(SamplingStrategy::random, kSize, 11), kSize, 0);
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
  const Sampler sampler(SamplingStrategy::random, huge, 5);
  for (std::int64_t i : {std::int64_t{0}, huge - 1, huge, huge + 12345}) {
    EXPECT_GE(sampler(i), 0);
    EXPECT_LT(sampler(i), huge);
  }
  EXPECT_EQ(Sampler(SamplingStrategy::random, 1, 5)(17), 0);
  EXPECT_THROW(Sampler(SamplingStrategy::random, 0, 5), InputError);
  EXPECT_THROW(sampler(-1), Error);
}

/// A dataset that defines only lengths.
class Lengths final : public Dataset {
 public:
  explicit Lengths(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(lengths_.size()); }
  std::int64_t max_length() const override { return *std::max_element(lengths_.begin(), lengths_.end()); }
  std::int64_t length(std::int64_t row) const override { return lengths_[static_cast<std::size_t>(row)]; }
  Row read(std::int64_t) const override { return {}; }

 private:
  std::vector<std::int64_t> lengths_;
};

TEST(GroupByLength, EveryEpochIsAPermutationThatBeginsWithTheLongest) {
  EXPECT_TRUE(rc::check([](std::uint64_t seed) {
    const Lengths dataset(*rc::gen::nonEmpty(rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange(1, 50))));
    const auto rows = *rc::gen::inRange<std::int64_t>(1, 20);
    const auto epoch = *rc::gen::inRange<std::int64_t>(0, 1000);
    auto order = epoch_order(Sampler(SamplingStrategy::group_by_length, dataset, seed, rows), dataset.size(), epoch);
    RC_ASSERT(dataset.length(order[0]) == dataset.max_length());
    std::sort(order.begin(), order.end());
    for (std::int64_t i = 0; i < dataset.size(); ++i) RC_ASSERT(order[static_cast<std::size_t>(i)] == i);
  }));
}

std::vector<std::int64_t> skewed_lengths(std::int64_t count) {
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < count; ++i) lengths.push_back(1 + (i * 7919 % 997) * (i * 7919 % 997) / 1000);
  return lengths;
}

TEST(GroupByLength, MegabatchesOfFiftyStepsLongestFirst) {
  const Lengths dataset(skewed_lengths(4000));
  const Sampler grouped(SamplingStrategy::group_by_length, dataset, 3, 8), random(SamplingStrategy::random, 4000, 3);
  const auto order = epoch_order(grouped, 4000, 2), shuffled = epoch_order(random, 4000, 2);
  for (std::size_t begin = 0; begin < 4000; begin += 400) {
    // Except for the one row that was moved to the front, a megabatch contains the rows of the random order, sorted.
    std::size_t unsorted = 0;
    for (std::size_t i = begin + 1; i < begin + 400; ++i)
      unsorted += dataset.length(order[i]) > dataset.length(order[i - 1]);
    EXPECT_LE(unsorted, 1u);
    std::vector<std::int64_t> mine(order.begin() + begin, order.begin() + begin + 400);
    std::vector<std::int64_t> theirs(shuffled.begin() + begin, shuffled.begin() + begin + 400);
    std::sort(mine.begin(), mine.end());
    std::sort(theirs.begin(), theirs.end());
    std::vector<std::int64_t> moved;
    std::set_difference(mine.begin(), mine.end(), theirs.begin(), theirs.end(), std::back_inserter(moved));
    EXPECT_LE(moved.size(), 1u);
  }
  EXPECT_NE(order, epoch_order(grouped, 4000, 1));
  EXPECT_NE(order, epoch_order(Sampler(SamplingStrategy::group_by_length, dataset, 4, 8), 4000, 2));
}

// transformers' rule: min(size / (4 x rows), 50) steps, at least 1.
TEST(GroupByLength, SmallDatasetsHaveSmallerMegabatches) {
  const Lengths dataset(skewed_lengths(64));
  const auto order = epoch_order(Sampler(SamplingStrategy::group_by_length, dataset, 3, 4), 64, 0);
  std::size_t rises = 0;  // at the boundaries of 4 megabatches of 16, and after the row moved to the front
  for (std::size_t i = 1; i < 64; ++i) rises += dataset.length(order[i]) > dataset.length(order[i - 1]);
  EXPECT_GE(rises, 2u);
  EXPECT_LE(rises, 5u);
}

/// Tokens of an epoch after padding the `rows` rows of each step.
std::int64_t padded_tokens(const Sampler& sampler, const Dataset& dataset, std::int64_t rows) {
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i + rows <= dataset.size(); i += rows) {
    std::int64_t longest = 0;
    for (std::int64_t j = i; j < i + rows; ++j) longest = std::max(longest, dataset.length(sampler(j)));
    tokens += longest * rows;
  }
  return tokens;
}

TEST(GroupByLength, PaddingFalls) {
  const Lengths dataset(skewed_lengths(4000));
  std::int64_t tokens = 0;
  for (std::int64_t i = 0; i < dataset.size(); ++i) tokens += dataset.length(i);
  const auto waste = [&](SamplingStrategy strategy) {
    return static_cast<double>(padded_tokens(Sampler(strategy, dataset, 5, 16), dataset, 16) - tokens) /
           static_cast<double>(tokens);
  };
  EXPECT_GT(waste(SamplingStrategy::random), 1.0);
  EXPECT_LT(waste(SamplingStrategy::group_by_length), 0.15);
}

TEST(GroupByLength, SeekingGivesTheSameRows) {
  const Lengths dataset(skewed_lengths(1000));
  const Sampler whole(SamplingStrategy::group_by_length, dataset, 5, 8);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < 5000; ++i) order.push_back(whole(i));
  const Sampler resumed(SamplingStrategy::group_by_length, dataset, 5, 8);  // into the fourth epoch, then back
  for (const std::int64_t from : {3210, 500, 4999}) EXPECT_EQ(resumed(from), order[static_cast<std::size_t>(from)]);
  EXPECT_THROW(Sampler(SamplingStrategy::group_by_length, 10, 5), InputError) << "needs the lengths";
  EXPECT_EQ(Sampler(SamplingStrategy::random, dataset, 5, 8)(77), Sampler(SamplingStrategy::random, 1000, 5)(77));
  EXPECT_EQ(Sampler(SamplingStrategy::sequential, dataset, 5, 8)(1077), 77);
}

}  // namespace
}  // namespace tessera::data
