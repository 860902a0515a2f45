#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <limits>

#include <tessera/train/reporting/progress.h>

namespace tessera::train {
namespace {

ProgressState half_way() { return {120, 400, 5.12345, 3e-4, 2100, std::int64_t{312} << 20, 112}; }

TEST(ProgressLine, ShowsEverythingWhereThereIsRoom) {
  const std::string line = progress_line(half_way(), 120);
  for (const char* part :
       {"120/400", "loss 5.1235", "lr 3.00e-04", "2.1 k tok/s", "312.0 MiB", "1:52 left", "[========"})
    EXPECT_NE(line.find(part), std::string::npos) << part << " in: " << line;
}

TEST(ProgressLine, LeavesOutTheLeastImportantFirst) {
  const std::string narrow = progress_line(half_way(), 40);
  EXPECT_NE(narrow.find("120/400"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("loss 5.1235"), std::string::npos) << narrow;
  EXPECT_NE(narrow.find("left"), std::string::npos) << narrow;
  EXPECT_EQ(narrow.find("lr "), std::string::npos) << narrow;
}

TEST(ProgressLine, WithoutALossYetThereIsNone) {
  ProgressState state = half_way();
  state.loss = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(progress_line(state, 100).find("loss"), std::string::npos);
}

RC_GTEST_PROP(ProgressLine, IsNeverWiderThanTheTerminal, ()) {
  ProgressState state;
  state.total_steps = *rc::gen::inRange<std::int64_t>(0, 1'000'000'000);
  state.step = *rc::gen::inRange<std::int64_t>(0, state.total_steps + 1);
  state.loss = *rc::gen::element(0.0, 5.5, 1e30, std::numeric_limits<double>::infinity());
  state.tokens_per_second = *rc::gen::element(0.0, 3.0, 1e12);
  state.seconds_left = *rc::gen::element(0.0, 1e9, std::numeric_limits<double>::infinity());
  const int columns = *rc::gen::inRange(0, 200);
  RC_ASSERT(static_cast<int>(progress_line(state, columns).size()) <= columns);
  RC_ASSERT(static_cast<int>(evaluation_line(state.step, state.total_steps, columns).size()) <= columns);
}

TEST(EvaluationLine, SaysHowFarItIs) {
  EXPECT_EQ(evaluation_line(3, 4, 30), "[=========>  ]  evaluation 3/4");
  EXPECT_EQ(evaluation_line(3, 4, 20), "evaluation 3/4");
}

TEST(PlainLine, HasTheNumbersOfTheStep) {
  StepMetrics metrics;
  metrics.step = 120;
  metrics.loss = 5.12345;
  metrics.grad_norm = 0.812;
  metrics.learning_rate = 3e-4;
  metrics.epoch = 0.61;
  metrics.tokens_per_second = 2100;
  metrics.memory_by_rank = {std::int64_t{312} << 20};
  EXPECT_EQ(
      plain_line(metrics, 400, 112),
      "step 120/400 (30%)  epoch 0.61  loss 5.1235  grad_norm 0.812  lr 3.00e-04  2.1 k tok/s  312.0 MiB  1:52 left");
}

}  // namespace
}  // namespace tessera::train
