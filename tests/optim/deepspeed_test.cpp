// DeepSpeed's schedules and loss scale, and torch's ReduceLROnPlateau, step by step.
#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/config/core/overrides.h>
#include <tessera/optim/loss_scale.h>
#include <tessera/optim/plateau.h>
#include <tessera/optim/schedule.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "deepspeed_fixture.inc"

namespace {

using namespace tessera;
using namespace tessera::optim;

constexpr double overflow = std::numeric_limits<double>::infinity();

Schedule schedule_of(const std::string& type, const std::string& parameters, std::int64_t warmup = 0,
                     std::int64_t total = 20) {
  return {.type = parse_word<ScheduleType>(type).value(),
          .warmup_steps = warmup,
          .total_steps = total,
          .learning_rate = deepspeed_learning_rate,
          .parameters = config::parse_overrides(parameters, "--lr_scheduler_kwargs")};
}

TEST(DeepspeedSchedule, rates_of_every_step) {
  for (const DeepspeedSchedule& values : deepspeed_schedules) {
    const Schedule schedule = schedule_of(values.type, values.parameters);
    check_schedule(schedule);
    for (std::int64_t step = 0; step < static_cast<std::int64_t>(std::size(values.rates)); ++step)
      EXPECT_NEAR(schedule_rate(schedule, step), values.rates[step], 1e-15 + 1e-13 * values.rates[step])
          << values.type << " " << values.parameters << " step " << step;
  }
}

TEST(DeepspeedSchedule, one_cycle_moves_the_first_beta) {
  int cycled = 0;
  for (const DeepspeedSchedule& values : deepspeed_schedules) {
    const Schedule schedule = schedule_of(values.type, values.parameters);
    for (std::int64_t step = 0; step < static_cast<std::int64_t>(std::size(values.beta1)); ++step) {
      const auto betas = schedule_betas(schedule, step);
      EXPECT_NEAR(betas ? betas->beta1 : 0.9, values.beta1[step], 1e-15)
          << values.type << " " << values.parameters << " step " << step;
      if (!betas) continue;
      EXPECT_EQ(betas->beta2, 0.99);
      ++cycled;
    }
  }
  EXPECT_EQ(cycled, 2 * 24);
}

TEST(DeepspeedSchedule, names_in_any_case_and_ours) {
  for (const std::int64_t step : {0, 3, 9})
    EXPECT_EQ(schedule_rate(schedule_of("one_cycle", "cycle_min_lr=0.1,cycle_max_lr=1,cycle_first_step_size=4"), step),
              schedule_rate(schedule_of("OneCycle", "cycle_min_lr=0.1,cycle_max_lr=1,cycle_first_step_size=4"), step));
}

TEST(DeepspeedSchedule, auto_takes_the_runs_numbers) {
  const Schedule given =
      schedule_of("warmup_decay_lr", "total_num_steps=20,warmup_num_steps=6,warmup_max_lr=0.001", 0, 99);
  const Schedule filled =
      schedule_of("warmup_decay_lr", "total_num_steps=auto,warmup_num_steps=auto,warmup_max_lr=auto", 6, 20);
  const Schedule left_out = schedule_of("warmup_decay_lr", "", 6, 20);
  for (std::int64_t step = 0; step < 25; ++step) {
    EXPECT_EQ(schedule_rate(filled, step), schedule_rate(given, step)) << step;
    EXPECT_EQ(schedule_rate(left_out, step), schedule_rate(given, step)) << step;
  }
}

TEST(DeepspeedSchedule, wrong_parameters_are_named) {
  const struct {
    const char *type, *parameters, *message;
  } cases[] = {
      {"OneCycle", "cycle_min_lr=1e-4", "cycle_max_lr of one_cycle: it must be set"},
      {"WarmupLR", "warmup_type=cosine", "warmup_type of warmup_lr: 'cosine' is unknown (known: log, linear)"},
      {"warmup_lr", "warmup_max_rl=1", "'warmup_max_rl' is unknown; did you mean 'warmup_max_lr'?"},
      {"lr_range_test", "lr_range_test_step_size=0", "lr_range_test_step_size of lr_range_test: 0 must be at least 1"},
      {"warmup_lr", "warmup_num_steps=2.5", "expected an integer"},
      {"WarmupCosineLR", "total_num_steps=6,warmup_num_steps=6", "6 are all warm-up"},
      {"one_cycle", "cycle_min_lr=0,cycle_max_lr=1,cycle_max_mom=1.5", "it must stay below 1"},
  };
  for (const auto& c : cases) {
    try {
      check_schedule(schedule_of(c.type, c.parameters));
      ADD_FAILURE() << c.type << " " << c.parameters << " was accepted";
    } catch (const InputError& error) {
      EXPECT_NE(std::string(error.what()).find(c.message), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(schedule_factor(schedule_of("lr_range_test", ""), 0), Error) << "it has rates, not factors";
}

TEST(DeepspeedLossScale, every_step) {
  for (const DeepspeedScale& values : deepspeed_scales) {
    LossScale scale({.initial = values.initial,
                     .growth_interval = values.window,
                     .minimum = values.minimum,
                     .hysteresis = values.hysteresis,
                     .consecutive_hysteresis = values.consecutive,
                     .first_good_step_counts = false});
    for (std::size_t i = 0; values.steps[i] != '\0'; ++i) {
      scale.update(values.steps[i] == 'x' ? overflow : 1);
      EXPECT_EQ(scale.scale(), values.scales[i])
          << values.steps << " step " << i << " hysteresis " << values.hysteresis;
    }
  }
}

TEST(DeepspeedLossScale, hysteresis_goes_on_from_a_checkpoint) {
  const LossScaleOptions options{.initial = 64, .growth_interval = 3, .hysteresis = 3, .first_good_step_counts = false};
  LossScale whole(options), first(options);
  for (const double norm : {overflow, overflow, 1.0}) whole.update(norm), first.update(norm);
  LossScale second(options);
  second.set_state(first.state());
  EXPECT_EQ(second.state().hysteresis, 1);
  for (const double norm : {overflow, 1.0, overflow, 1.0}) {
    EXPECT_EQ(whole.update(norm), second.update(norm));
    EXPECT_EQ(whole.scale(), second.scale());
  }
  EXPECT_EQ(whole.scale(), 16);
  LossScale older(options);
  older.set_state({.scale = 8, .good_steps = 1, .skipped_steps = 2});  // a checkpoint without this field
  EXPECT_EQ(older.state().hysteresis, 3);
  EXPECT_THROW(LossScale({.hysteresis = 0}), InputError);
}

TEST(Plateau, is_torchs) {
  for (const TorchPlateau& values : torch_plateaus) {
    Plateau plateau(schedule_of("reduce_lr_on_plateau", values.parameters));
    EXPECT_EQ(plateau.rate(deepspeed_learning_rate), deepspeed_learning_rate);
    for (std::size_t i = 0; i < std::size(plateau_metrics); ++i) {
      plateau.update(plateau_metrics[i]);
      EXPECT_NEAR(plateau.rate(deepspeed_learning_rate), values.rates[i], 1e-18)
          << values.parameters << " metric " << i;
    }
  }
}

TEST(Plateau, goes_on_from_a_checkpoint_and_refuses_what_makes_no_sense) {
  const Schedule schedule = schedule_of("reduce_lr_on_plateau", "patience=1,cooldown=1");
  Plateau whole(schedule), second(schedule);
  for (std::size_t i = 0; i < std::size(plateau_metrics); ++i) {
    whole.update(plateau_metrics[i]);
    Plateau next(schedule);
    next.set_state(second.state());
    next.update(plateau_metrics[i]);
    second = next;
    EXPECT_EQ(second.rate(deepspeed_learning_rate), whole.rate(deepspeed_learning_rate)) << i;
  }
  EXPECT_LT(whole.rate(deepspeed_learning_rate), deepspeed_learning_rate);
  EXPECT_THROW(Plateau(schedule_of("reduce_lr_on_plateau", "factor=1")), InputError);
  EXPECT_THROW(Plateau(schedule_of("reduce_lr_on_plateau", "mode=low")), InputError);
  EXPECT_THROW(Plateau(schedule_of("reduce_lr_on_plateau", "patients=1")), InputError);
  EXPECT_FALSE(make_plateau(schedule_of("linear", "")));
  EXPECT_TRUE(make_plateau(schedule));
}

/// Checkpoints of `tessera train` store one group's state as an object, those of tessera::Trainer an array.
TEST(Plateau, lowers_each_group_from_where_it_began) {
  const Schedule schedule = schedule_of("reduce_lr_on_plateau", "patience=0,factor=0.5");
  Plateau plateau(schedule, {0.1, 0.01, 0.1});
  for (const double metric : {1.0, 2.0}) plateau.update(metric);
  EXPECT_EQ(plateau.rate(0.1), 0.05);
  EXPECT_EQ(plateau.rate(0.01), 0.005);
  EXPECT_EQ(plateau.state().items().size(), 2u);
  Plateau resumed(schedule, {0.01, 0.1});
  resumed.set_state(plateau.state());
  for (Plateau* one : {&plateau, &resumed}) one->update(1.5);
  EXPECT_EQ(resumed.rate(0.1), plateau.rate(0.1));
  EXPECT_EQ(resumed.rate(0.01), 0.0025);

  Plateau alone(schedule, {0.1});
  EXPECT_THROW(alone.set_state(plateau.state()), InputError);
  alone.set_state(Value::make_array({plateau.state().items()[1]}));
  EXPECT_EQ(alone.rate(0.1), 0.025);
  Plateau same(schedule, {0.1});
  same.set_state(alone.state());
  EXPECT_EQ(same.rate(0.1), 0.025);
  EXPECT_TRUE(same.state().is_object());
}

}  // namespace
