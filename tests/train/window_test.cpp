// The losses between two log lines.

#include <tessera/train/reporting/window.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "one_rank.h"

namespace tessera::train {
namespace {

constexpr double infinite = std::numeric_limits<double>::infinity();

double loss_of(Window& window, const std::vector<double>& cross_entropies) {
  window.begin_step({.scored_tokens = 10, .tokens = 12, .labels_not_ignored = 11, .inputs = 16});
  for (const double value : cross_entropies) window.add_loss(value);
  window.end_step(1, 1);
  return window.close(one_rank(), {}, {}, 1).loss;
}

TEST(Window, ALossThatIsNotFiniteCountsAsTheMeanOfTheOthers) {
  Window filtered(false, true), plain(false);
  EXPECT_DOUBLE_EQ(loss_of(filtered, {3, 5, infinite, std::nan(""), 4}), (3 + 5 + 4 + 4 + 4) / 10.0);
  EXPECT_DOUBLE_EQ(loss_of(filtered, {infinite, 2}), 0.2) << "nothing before it";
  EXPECT_TRUE(std::isinf(loss_of(plain, {3, infinite})));
  EXPECT_DOUBLE_EQ(loss_of(plain, {3, 5}), 0.8);
}

TEST(Window, CountsInputsWithPadding) {
  Window window(false);
  window.begin_step({.scored_tokens = 10, .tokens = 12, .labels_not_ignored = 11, .inputs = 16});
  EXPECT_EQ(window.step_inputs(), 16);
  EXPECT_EQ(window.step_tokens(), 12);
}

}  // namespace
}  // namespace tessera::train
