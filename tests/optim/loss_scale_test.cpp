// Loss scaling that adapts as torch.amp.GradScaler does.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/loss_scale.h>

#include <cmath>
#include <limits>

namespace {

using namespace tessera;
using tessera::optim::LossScale;
using tessera::optim::LossScaleOptions;

constexpr double bad = std::numeric_limits<double>::infinity();

TEST(LossScale, grows_after_enough_good_steps_and_backs_off_at_a_bad_one) {
  LossScale scale({.initial = 8, .growth_factor = 4, .backoff_factor = 0.5, .growth_interval = 3});
  EXPECT_EQ(scale.gradient_factor(), 0.125);
  for (const double expected : {8.0, 8.0, 32.0, 32.0, 32.0, 128.0}) {
    EXPECT_TRUE(scale.update(1));
    EXPECT_EQ(scale.scale(), expected);
  }
  EXPECT_TRUE(scale.update(1));
  EXPECT_FALSE(scale.update(bad));  // counting starts over
  EXPECT_EQ(scale.scale(), 64);
  EXPECT_FALSE(scale.update(std::nan("")));
  EXPECT_EQ(scale.scale(), 32);
  for (const double expected : {32.0, 32.0, 128.0}) {
    EXPECT_TRUE(scale.update(1e30));
    EXPECT_EQ(scale.scale(), expected);
  }
  EXPECT_EQ(scale.state().skipped_steps, 2);
}

RC_GTEST_PROP(LossScaleProperty, is_gradscalers_rule, ()) {
  // torch/amp/grad_scaler.py and aten/src/ATen/native/cuda/AmpKernels.cu, amp_update_scale
  const auto interval = *rc::gen::inRange<std::int64_t>(1, 5);
  LossScale scale({.initial = 1024, .growth_interval = interval, .minimum = 0});
  double expected = 1024;
  std::int64_t tracker = 0;
  for (const bool good : *rc::gen::container<std::vector<bool>>(rc::gen::arbitrary<bool>())) {
    RC_ASSERT(scale.update(good ? 1 : bad) == good);
    if (!good) {
      expected *= 0.5;
      tracker = 0;
    } else if (++tracker == interval) {
      expected *= 2;
      tracker = 0;
    }
    RC_ASSERT(scale.scale() == expected);
    RC_ASSERT(scale.state().good_steps == tracker);
  }
}

TEST(LossScale, a_static_scale_stays) {
  LossScale scale({.dynamic = false, .initial = 128, .growth_interval = 1});
  EXPECT_TRUE(scale.update(1));
  EXPECT_FALSE(scale.update(bad));
  EXPECT_EQ(scale.scale(), 128);
  EXPECT_EQ(scale.state().skipped_steps, 1);
}

TEST(LossScale, stops_when_it_cannot_help) {
  LossScale scale({.initial = 4, .minimum = 1});
  EXPECT_FALSE(scale.update(bad));
  EXPECT_FALSE(scale.update(bad));
  EXPECT_EQ(scale.scale(), 1);
  try {
    scale.update(bad);
    ADD_FAILURE() << "went on";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("below the minimum 1"), std::string::npos) << error.what();
  }
  LossScale large({.initial = 0x1p127, .growth_interval = 1});
  EXPECT_TRUE(large.update(1));
  EXPECT_EQ(large.scale(), 0x1p127);  // the largest power of two that a float can represent
}

TEST(LossScale, goes_on_from_a_checkpoint) {
  const LossScaleOptions options{.initial = 16, .growth_interval = 4};
  LossScale whole(options), first(options);
  for (const double norm : {1.0, bad, 1.0, 1.0, 1.0}) whole.update(norm), first.update(norm);
  LossScale second(options);
  second.set_state(first.state());
  for (const double norm : {1.0, 1.0, bad, 1.0}) EXPECT_EQ(whole.update(norm), second.update(norm));
  EXPECT_EQ(whole.scale(), second.scale());
  EXPECT_EQ(whole.state().good_steps, second.state().good_steps);
  EXPECT_EQ(whole.state().skipped_steps, second.state().skipped_steps);
  EXPECT_THROW(second.set_state({.scale = 0}), InputError);
  EXPECT_THROW(second.set_state({.scale = 1, .good_steps = -1}), InputError);
}

TEST(LossScale, refuses_numbers_that_make_no_sense) {
  EXPECT_THROW(LossScale({.initial = 0}), InputError);
  EXPECT_THROW(LossScale({.initial = bad}), InputError);
  EXPECT_THROW(LossScale({.growth_factor = 0.5}), InputError);
  EXPECT_THROW(LossScale({.backoff_factor = 1}), InputError);
  EXPECT_THROW(LossScale({.growth_interval = 0}), InputError);
  EXPECT_THROW(LossScale({.minimum = -1}), InputError);
}

}  // namespace
