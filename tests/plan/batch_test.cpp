// Advice on batch sizes, and the evaluation of a learning-rate range test.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/plan/batch.h>
#include <tessera/plan/lr_range.h>

#include <cmath>

namespace tessera::plan {
namespace {

TEST(BatchAdvice, ACriticalBatchTakesTwiceTheLeastOfBoth) {
  const BatchQuestion q{.critical_rows = 64,
                        .rows = 64,
                        .steps = 1000,
                        .learning_rate = 1e-3,
                        .warmup_steps = 40,
                        .rule = BatchRule::square_root,
                        .rows_per_second = 100,
                        .devices = 2};
  const auto advice = batch_advice(q, {1, 64, 256, 1 << 20});
  EXPECT_DOUBLE_EQ(advice[1].steps, 1000);
  EXPECT_DOUBLE_EQ(advice[1].learning_rate, 1e-3);
  EXPECT_DOUBLE_EQ(advice[2].steps, 625) << "500 (1 + 64 / 256)";
  EXPECT_DOUBLE_EQ(advice[2].learning_rate, 2e-3);
  EXPECT_DOUBLE_EQ(advice[2].warmup_steps, 10);
  EXPECT_DOUBLE_EQ(advice[2].rows_wasted, 625 * 256 / 64e3 - 1);
  EXPECT_DOUBLE_EQ(advice[2].seconds, 625 * 256 / (100.0 * 2 * 4));
  EXPECT_NEAR(advice[0].samples, 32500, 1e-6) << "nearly half the rows";
  EXPECT_NEAR(advice[3].steps, 500, 0.1) << "half the steps at least";
}

TEST(BatchAdvice, RefusesWhatHasNoMeaning) {
  EXPECT_THROW(batch_advice({.critical_rows = 0, .rows = 8, .steps = 10}, {8}), InputError);
  EXPECT_THROW(batch_advice({.critical_rows = 5, .rows = 8, .steps = 10}, {0}), InputError);
}

TEST(RangeTest, FindsWhereTheLossFallsFastest) {
  std::vector<RangePoint> points;
  for (int i = 0; i < 100; ++i) {  // falls around 1e-3, rises above 1e-1
    const double decade = -6 + 0.06 * i;
    points.push_back({std::pow(10, decade), 5 - 2 / (1 + std::exp(-4 * (decade + 3))) +
                                                (decade > -1 ? 40 * (decade + 1) * (decade + 1) : 0)});
  }
  const RangeTest test = range_test(points);
  EXPECT_NEAR(std::log10(test.steepest), -3, 0.4);
  EXPECT_NEAR(std::log10(test.lowest), -1, 0.4);
  EXPECT_LT(test.points.size(), points.size()) << "the curve ends where the loss explodes";
  EXPECT_NE(draw(test).find('*'), std::string::npos);
  EXPECT_NE(describe(test).find("Suggested learning rate: 0.00"), std::string::npos) << describe(test);
  EXPECT_THROW(range_test({{1e-3, 5}}), InputError);
  points.resize(30);
  for (RangePoint& point : points) point.loss = 5 + point.learning_rate;
  EXPECT_NE(describe(range_test(points)).find("never falls"), std::string::npos);
}

}  // namespace
}  // namespace tessera::plan
