// Gradient norms, clipping and learning-rate schedules.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/config/core/overrides.h>
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
  gradients[0] = gradients[0].to(at::kDouble);  // float64 next to float32
  EXPECT_NEAR(gradient_norm(gradients) / std::sqrt(sum), 1, 1e-13);
  EXPECT_EQ(gradient_norm({at::full({4}, 3.0, at::kBFloat16)}), 6);
  EXPECT_EQ(gradient_norm({}), 0);
  EXPECT_EQ(gradient_norm({at::Tensor()}), 0);
}

TEST(GradientNorm, keeps_what_float32_would_lose) {
  // A million squares of 1e-4 after a single 1: added one by one in float32 they would vanish.
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

Schedule schedule_of(const std::string& type, const std::string& parameters, std::int64_t warmup = 3) {
  return {.type = parse_word<ScheduleType>(type).value(),
          .warmup_steps = warmup,
          .total_steps = 10,
          .learning_rate = schedule_learning_rate,
          .parameters = config::parse_overrides(parameters, "--lr_scheduler_kwargs")};
}

TEST(Schedule, is_transformers) {
  int checked = 0;
  for (const ScheduleValues& values : transformers_schedules) {
    Schedule schedule = schedule_of(values.type, values.parameters, values.warmup);
    schedule.total_steps = values.total;
    check_schedule(schedule);
    for (std::size_t i = 0; i < std::size(schedule_steps); ++i, ++checked)
      EXPECT_NEAR(schedule_factor(schedule, schedule_steps[i]), values.factors[i], 1e-15)
          << values.type << " " << values.parameters << " warmup " << values.warmup << " total " << values.total
          << " step " << schedule_steps[i];
  }
  EXPECT_EQ(checked, 9 * 70);
}

TEST(Schedule, parameters_may_be_json) {
  EXPECT_EQ(schedule_factor(schedule_of("cosine_with_restarts", R"({"num_cycles": 3})"), 5),
            schedule_factor(schedule_of("cosine_with_restarts", "num_cycles=3"), 5));
}

// Megatron's lr_decay_iters: the rate falls over its own number of steps, not the run's, and then stays at its final
// value.
TEST(Schedule, may_fall_over_other_steps_than_the_runs) {
  Schedule longer = schedule_of("cosine_with_min_lr", "min_lr_rate=0.1");
  longer.total_steps = 20;
  Schedule told = schedule_of("cosine_with_min_lr", "min_lr_rate=0.1,num_training_steps=20");
  for (const std::int64_t step : {0, 2, 5, 19, 20})
    EXPECT_EQ(schedule_factor(told, step), schedule_factor(longer, step));
  EXPECT_EQ(schedule_factor(told, 35), 0.1);
  EXPECT_EQ(schedule_factor(schedule_of("linear", "num_training_steps=5"), 9), 0);
}

// Megatron's lr_warmup_init: the warm-up starts from this rate; the rest of the schedule is unchanged.
TEST(Schedule, warms_up_from_a_rate_above_0) {
  for (const char* type : {"linear", "cosine", "constant_with_warmup", "inverse_sqrt", "polynomial"}) {
    Schedule plain = schedule_of(type, "");
    plain.warmup_steps = 4;
    plain.learning_rate = 1e-3;
    Schedule raised = schedule_of(type, "warmup_init_lr=2e-4");
    raised.warmup_steps = 4;
    raised.learning_rate = 1e-3;
    for (const std::int64_t step : {0, 1, 2, 3})
      EXPECT_NEAR(schedule_rate(raised, step), 2e-4 + 8e-4 * static_cast<double>(step) / 4, 1e-18) << type << step;
    for (const std::int64_t step : {4, 7, 10}) EXPECT_EQ(schedule_rate(raised, step), schedule_rate(plain, step));
  }
}

// Megatron's WSD (optimizer_param_scheduler.py): the warm-up starts at 0 whatever the minimum rate, the rate then stays
// constant, and falls over its last steps in one of four shapes.
TEST(Schedule, stays_and_falls_as_in_megatron) {
  const auto factors = [](const std::string& shape) {
    const Schedule schedule =
        schedule_of("warmup_stable_decay",
                    "num_decay_steps=4,warmup_init_lr=0,min_lr_ratio=0.2,num_training_steps=8,decay_type=" + shape, 2);
    std::vector<double> all;
    for (std::int64_t step = 0; step < 10; ++step) all.push_back(schedule_factor(schedule, step));
    return all;
  };
  const std::pair<std::string, std::vector<double>> shapes[] = {
      {"linear", {0.75, 0.5, 0.25}},
      {"cosine", {0.5 * (1 + std::sqrt(0.5)), 0.5, 0.5 * (1 - std::sqrt(0.5))}},
      {"1-sqrt", {0.5, 1 - std::sqrt(0.5), 1 - std::sqrt(0.75)}},
      {"exponential", {2 * std::pow(0.5, 0.25) - 1, 2 * std::pow(0.5, 0.5) - 1, 2 * std::pow(0.5, 0.75) - 1}}};
  for (const auto& [shape, falls] : shapes) {
    const std::vector<double> came = factors(shape);
    std::vector<double> expected = {0, 0.5, 1, 1, 1};
    for (const double fall : falls) expected.push_back(0.2 + 0.8 * fall);
    expected.insert(expected.end(), {0.2, 0.2});
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(came[i], expected[i], 1e-12) << shape << " step " << i;
  }
}

std::string refusal(const Schedule& schedule) {
  try {
    check_schedule(schedule);
  } catch (const InputError& error) {
    return error.what();
  }
  ADD_FAILURE() << schedule.type << " was accepted";
  return "";
}

TEST(Schedule, wrong_steps_and_parameters_are_refused) {
  EXPECT_THROW(schedule_factor({.type = ScheduleType::linear, .warmup_steps = -1}, 0), InputError);
  EXPECT_THROW(schedule_factor({.type = ScheduleType::linear}, -1), InputError);
}

TEST(Schedule, bad_parameters_are_refused_with_the_rule) {
  const struct {
    const char *type, *parameters, *message;
  } cases[] = {
      {"polynomial", "lr_ned=0",
       "parameter of polynomial 'lr_ned' is unknown; did you mean 'lr_end'? (known: lr_end, power, "
       "num_training_steps, warmup_init_lr)"},
      {"linear", "power=2", "'power' is unknown (known: num_training_steps, warmup_init_lr)"},
      {"cosine", "warmup_init_lr=0.5", "warmup_init_lr of cosine: 0.5 is more than --learning_rate 0.001"},
      {"polynomial", "lr_end=0.5", "lr_end of polynomial: 0.5 must be below --learning_rate 0.001"},
      {"polynomial", "power=-1", "power of polynomial: -1 must be at least 0"},
      {"inverse_sqrt", "timescale=0", "timescale of inverse_sqrt: 0 must be at least 1"},
      {"inverse_sqrt", "timescale=2.5", "expected an integer"},
      {"cosine", "num_cycles=many", "expected a number"},
      {"cosine_with_min_lr", "", "exactly one of the two must be set"},
      {"cosine_with_min_lr", "min_lr=1e-4,min_lr_rate=0.1", "exactly one of the two must be set"},
      {"warmup_stable_decay", "", "num_decay_steps of warmup_stable_decay: it must be set"},
      {"warmup_stable_decay", "num_decay_steps=8", "8 and 3 steps of warm-up exceed the total of 10"},
      {"warmup_stable_decay", "num_decay_steps=2,decay_type=sqrt",
       "'sqrt' is unknown (known: linear, cosine, 1-sqrt, "
       "exponential)"},
  };
  for (const auto& c : cases) {
    const std::string message = refusal(schedule_of(c.type, c.parameters));
    EXPECT_NE(message.find(c.message), std::string::npos) << message;
  }
}

}  // namespace
