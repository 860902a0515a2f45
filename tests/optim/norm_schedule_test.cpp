// Gradient norms, clipping and learning-rate schedules.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/optimizer.h>

#include <cmath>
#include <limits>

#include "torch_optim_fixture.inc"

namespace {

using namespace tessera;
using namespace tessera::optim;

TEST(GradientNorm, is_the_norm_of_all_gradients_together) {
  at::manual_seed(5);
  std::vector<at::Tensor> gradients = {at::randn({3}), at::Tensor(), at::randn({100003}), at::randn({0}),
                                       at::randn({40, 50}).t()};
  double sum = 0;
  for (const at::Tensor& g : gradients)
    if (g.defined()) sum += g.to(at::kDouble).square().sum().item<double>();
  EXPECT_NEAR(gradient_norm(gradients) / std::sqrt(sum), 1, 1e-13);
  gradients[0] = gradients[0].to(at::kDouble);  // float64 beside float32
  EXPECT_NEAR(gradient_norm(gradients) / std::sqrt(sum), 1, 1e-13);
  EXPECT_EQ(gradient_norm({at::full({4}, 3.0, at::kBFloat16)}), 6);
  EXPECT_EQ(gradient_norm({}), 0);
  EXPECT_EQ(gradient_norm({at::Tensor()}), 0);
}

TEST(GradientNorm, keeps_what_float32_would_lose) {
  // A million squares of 1e-4 after one of 1: added one by one in float32 they would vanish.
  const at::Tensor small = at::full({1 << 20}, 1e-4);
  EXPECT_NEAR(gradient_norm({at::ones({1}), small}), std::sqrt(1 + (1 << 20) * 1e-8), 1e-7);
}

TEST(GradientNorm, bits_do_not_depend_on_threads) {
  at::manual_seed(6);
  const std::vector<at::Tensor> gradients = {at::randn({1000001}), at::randn({77777}), at::randn({4096})};
  at::set_num_threads(1);
  const double one = gradient_norm(gradients);
  for (const int threads : {2, 3, 5}) {
    at::set_num_threads(threads);
    EXPECT_EQ(gradient_norm(gradients), one) << threads << " threads";
  }
  at::set_num_threads(1);
}

TEST(GradientNorm, bad_numbers_stay_visible) {
  const double inf = std::numeric_limits<double>::infinity();
  EXPECT_TRUE(std::isinf(gradient_norm({at::full({5}, inf)})));
  EXPECT_TRUE(std::isnan(gradient_norm({at::full({5}, std::nan(""))})));
  EXPECT_TRUE(std::isnan(clip_coefficient(std::nan(""), 1)));
  EXPECT_EQ(clip_coefficient(inf, 1), 0);
  EXPECT_THROW(gradient_norm({at::ones({2}, at::kLong)}), InputError);
}

TEST(ClipCoefficient, is_hugging_faces) {
  EXPECT_EQ(clip_coefficient(0.5, 1), 1);
  EXPECT_EQ(clip_coefficient(0, 1), 1);
  EXPECT_DOUBLE_EQ(clip_coefficient(4, 1), 1 / (4 + 1e-6));
  EXPECT_EQ(clip_coefficient(100, 0), 1);  // off
  EXPECT_EQ(clip_coefficient(100, -1), 1);
}

TEST(Schedule, is_transformers) {
  int checked = 0;
  for (const ScheduleValue& value : transformers_schedules) {
    const Schedule schedule{.type = value.type, .warmup_steps = value.warmup, .total_steps = value.total};
    EXPECT_NEAR(schedule_factor(schedule, value.step), value.factor, 1e-15)
        << value.type << " warmup " << value.warmup << " total " << value.total << " step " << value.step;
    ++checked;
  }
  EXPECT_EQ(checked, 128);
}

TEST(Schedule, unknown_types_are_refused_with_the_nearest) {
  try {
    schedule_factor({.type = "cosin"}, 0);
    FAIL() << "nothing was thrown";
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean 'cosine'"), std::string::npos) << error.what();
  }
  EXPECT_THROW(schedule_factor({.type = "linear", .warmup_steps = -1}, 0), InputError);
  EXPECT_THROW(schedule_factor({.type = "linear"}, -1), InputError);
}

}  // namespace
