#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/corpus/blend_order.h>

#include <cmath>
#include <numeric>
#include <vector>

namespace tessera::corpus {
namespace {

TEST(BlendOrder, SharesAreKeptAllTheWay) {
  for (const std::vector<double>& weights :
       {std::vector<double>{0.7, 0.3}, {1}, {5, 3, 2}, {0.9, 0.05, 0.03, 0.02}, {1, 1, 1, 1, 1, 1, 1}}) {
    const BlendOrder order(weights);
    const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
    std::vector<std::int64_t> taken(weights.size(), 0);
    double worst = 0;
    for (std::int64_t i = 0; i < 200'000; ++i) {
      const auto [part, number] = order(i);
      const auto p = static_cast<std::size_t>(part);
      ASSERT_EQ(number, taken[p]);
      ++taken[p];
      if (i + 1 == 10'000) {
        for (std::size_t q = 0; q < weights.size(); ++q)
          EXPECT_NEAR(static_cast<double>(taken[q]) / 10'000, weights[q] / sum, 1e-3);
      }
      worst = std::max(worst, std::abs(static_cast<double>(taken[p]) - static_cast<double>(i + 1) * weights[p] / sum));
    }
    EXPECT_LE(worst, 5) << "samples ahead or behind";  // 200,000 samples of weights rounded to 1 / 65536
  }
}

RC_GTEST_PROP(BlendOrder, TenThousandSamplesHaveTheirShares, ()) {
  const auto numbers = *rc::gen::container<std::vector<int>>(*rc::gen::inRange(1, 40), rc::gen::inRange(1, 1000));
  const std::vector<double> weights(numbers.begin(), numbers.end());
  const BlendOrder order(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<std::int64_t> taken(weights.size(), 0);
  for (std::int64_t i = 0; i < 10'000; ++i) {
    const auto [part, number] = order(i);
    RC_ASSERT(number == taken[static_cast<std::size_t>(part)]++);
  }
  for (std::size_t p = 0; p < weights.size(); ++p)
    RC_ASSERT(std::abs(static_cast<double>(taken[p]) / 10'000 - weights[p] / sum) < 1e-3);
  for (std::int64_t p = 0; p < order.parts(); ++p) {
    const std::int64_t count = *rc::gen::inRange<std::int64_t>(1, 200'000);
    const std::int64_t samples = order.samples_for(p, count);
    const auto last = order(samples - 1);
    RC_ASSERT(last.part == p);
    RC_ASSERT(last.number == count - 1);
  }
}

TEST(BlendOrder, Refuses) {
  EXPECT_THROW(BlendOrder(std::vector<double>{}), InputError);
  EXPECT_THROW(BlendOrder(std::vector<double>{1, 0}), InputError);
  EXPECT_THROW(BlendOrder(std::vector<double>{1, std::nan("")}), InputError);
  EXPECT_THROW(BlendOrder(std::vector<double>(65537, 1.0)), InputError);
  const BlendOrder many(std::vector<double>(65536, 1.0));
  EXPECT_EQ(many(65536).number, 1);
}

}  // namespace
}  // namespace tessera::corpus
