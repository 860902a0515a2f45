#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include <tessera/train/reporting/phases.h>

namespace tessera::train {
namespace {

constexpr std::int64_t second = 1'000'000'000;

TEST(PhaseClock, BooksTimeOnThePhaseThatEnds) {
  PhaseClock clock;
  clock.enter(Phase::data, 10 * second, 0);
  clock.enter(Phase::forward, 11 * second, 0);
  clock.enter(Phase::backward, 13 * second, 0);
  clock.enter(Phase::forward, 16 * second, 0);
  clock.enter(Phase::other, 17 * second, 0);
  const PhaseSeconds seconds = clock.take();
  EXPECT_DOUBLE_EQ(at(seconds, Phase::data), 1);
  EXPECT_DOUBLE_EQ(at(seconds, Phase::forward), 3);
  EXPECT_DOUBLE_EQ(at(seconds, Phase::backward), 3);
  EXPECT_DOUBLE_EQ(at(seconds, Phase::other), 0) << "not ended yet";
}

TEST(PhaseClock, WaitingForOthersIsCommunication) {
  PhaseClock clock;
  clock.enter(Phase::backward, 0, 5.0);
  clock.enter(Phase::optimizer, 4 * second, 5.5);
  const PhaseSeconds seconds = clock.take();
  EXPECT_DOUBLE_EQ(at(seconds, Phase::communication), 0.5);
  EXPECT_DOUBLE_EQ(at(seconds, Phase::backward), 3.5);
}

TEST(PhaseClock, AWindowGoesOnWhereTheLastOneEnded) {
  PhaseClock clock;
  clock.enter(Phase::data, 0, 0);
  clock.enter(Phase::other, second, 0);
  clock.take();
  clock.enter(Phase::data, 3 * second, 0);
  const PhaseSeconds seconds = clock.take();
  EXPECT_DOUBLE_EQ(at(seconds, Phase::other), 2);
  EXPECT_DOUBLE_EQ(at(seconds, Phase::data), 0);
}

RC_GTEST_PROP(PhaseClock, NothingIsLostOrCountedTwice, ()) {
  PhaseClock clock;
  std::int64_t now = *rc::gen::inRange<std::int64_t>(0, 1'000'000);
  const std::int64_t begin = now;
  double blocked = 0;
  clock.enter(Phase::data, now, blocked);
  const int changes = *rc::gen::inRange(1, 20);
  for (int i = 0; i < changes; ++i) {
    now += *rc::gen::inRange<std::int64_t>(0, 1'000'000'000);
    blocked += *rc::gen::inRange(0, 2000) * 1e-3;  // several threads may be blocked at once
    clock.enter(static_cast<Phase>(*rc::gen::inRange(0, 6)), now, blocked);
  }
  const PhaseSeconds seconds = clock.take();
  RC_ASSERT(*std::min_element(seconds.begin(), seconds.end()) >= 0);
  const double sum = std::accumulate(seconds.begin(), seconds.end(), 0.0);
  RC_ASSERT(std::abs(sum - static_cast<double>(now - begin) * 1e-9) < 1e-9 * changes);
}

}  // namespace
}  // namespace tessera::train
