// The engine follows DeepSpeed's JSON.
#include <tests/faces/loop.h>

#include <tessera/base/file.h>
#include <tessera/config/core/run_config.h>
#include <tessera/faces/deepspeed.h>

#include <algorithm>

namespace {

using namespace tessera;
using namespace tessera::testing;

TEST(DeepSpeedJson, batch_sizes_follow_from_each_other) {
  const auto triple = [](const std::string& json, int ranks) {
    const OptimizationConfig config = faces::read_configuration({.config = json}, ranks).optimization;
    return std::pair(config.per_device_train_batch_size, config.gradient_accumulation_steps);
  };
  using Pair = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(triple(R"({"train_batch_size": 64})", 2), Pair(32, 1));
  EXPECT_EQ(triple(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4})", 2), Pair(4, 8));
  EXPECT_EQ(triple(R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3})", 4), Pair(4, 3));
  try {
    triple(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 3})", 2);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("64 != 4 * 3 * 2"), std::string::npos) << error.what();
  }
  EXPECT_THROW(triple(R"({"gradient_accumulation_steps": 3})", 2), InputError);
}

TEST(DeepSpeedJson, every_section_acts) {
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "ds.json");
  write_file_atomically(file, R"({
    "train_batch_size": 24,
    "gradient_accumulation_steps": 3,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.002, "betas": [0.9, 0.999], "eps": 1e-8, "weight_decay": 0.01}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.002, "warmup_num_steps": 4,
    "warmup_type": "linear"}},
    "gradient_clipping": 1.0,
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}
  })");
  constexpr int steps = 6;
  const auto rate = [](int step) { return 0.002 * std::min(1.0, step / 4.0); };
  run_ranks(2, [&](comm::World& world) {
    auto engine = initialize(make_net(), {.config = file});
    EXPECT_EQ(engine.train_batch_size(), 24);
    EXPECT_EQ(engine.train_micro_batch_size_per_gpu(), 4);
    EXPECT_EQ(engine.gradient_accumulation_steps(), 3);
    EXPECT_EQ(engine.zero_optimization_stage(), 3);
    EXPECT_EQ(engine.gradient_clipping(), 1);
    std::vector<double> rates;
    for (int step = 0; step < steps; ++step) {
      rates.push_back(engine.get_lr().at(0));
      for (int m = 0; m < 3; ++m) {
        const Batch batch = micro_batch(step, m * 2 + world.rank(), 6);
        engine.backward((engine(batch.x) - batch.y).square().mean());
        engine.step();
      }
      EXPECT_GT(engine.get_global_grad_norm(), 0);
    }
    for (std::size_t step = 1; step < rates.size(); ++step) EXPECT_GE(rates[step], rates[step - 1]);
    EXPECT_LT(rates[0], 0.002);
    EXPECT_NEAR(rates.back(), 0.002, 1e-12);
    // the plain loop at these rates
    const Plain plain =
        train_plain(6, steps, decay_all, [&](int step) { return rates[static_cast<std::size_t>(step)]; });
    expect_close(weights_of(engine.sharded()), plain.weights, 2e-5, "ds.json");
    EXPECT_NEAR(rates[2], rate(2), 0.0006) << "linear, starting at the first or the second step";
  });
}

// Gradients are divided before the sum over ranks and multiplied after it: results differ only by precision lost on the
// wire.
TEST(DeepSpeedJson, predivided_gradients_are_small_on_the_wire_only) {
  run_ranks(2, [](comm::World& world) {
    const auto norm_with = [&](const std::string& setting, double factor) {
      at::manual_seed(3);
      auto engine = initialize(make_net(), {.config = R"({"train_batch_size": 8, "optimizer": {"type": "Adam"},
                                                          "gradient_clipping": 1)" +
                                                      setting + "}"});
      EXPECT_EQ(engine.sharded().options().gradient_predivide_factor, factor) << setting;
      const Batch batch = micro_batch(0, world.rank(), 2);
      engine.backward((engine(batch.x) - batch.y).square().mean());
      engine.step();
      return engine.get_global_grad_norm();
    };
    const double plain = norm_with("", 1);
    EXPECT_NEAR(norm_with(R"(, "gradient_predivide_factor": 3)", 3) / plain, 1, 1e-6);
    EXPECT_NEAR(norm_with(R"(, "prescale_gradients": true)", 2) / plain, 1, 1e-6);
    EXPECT_NE(norm_with(R"(, "gradient_predivide_factor": 1e37)", 1e37), plain) << "denormal numbers have few digits";
  });
}

TEST(DeepSpeedJson, one_cycle_moves_rate_and_betas) {
  run_ranks(1, [](comm::World&) {
    auto engine = initialize(make_net(), {.config = R"({"train_batch_size": 8,
        "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
        "scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.001, "cycle_max_lr": 0.01,
        "cycle_first_step_size": 2}}})"});
    std::vector<double> rates;
    for (int step = 0; step < 5; ++step) {
      rates.push_back(engine.get_lr().at(0));
      const Batch batch = micro_batch(step, 0, 1);
      engine.backward((engine(batch.x) - batch.y).square().mean());
      engine.step();
    }
    const auto peak = std::max_element(rates.begin(), rates.end());
    EXPECT_NEAR(*peak, 0.01, 1e-12);
    EXPECT_LT(rates.front(), *peak);
    EXPECT_LT(rates.back(), *peak);
  });
}

TEST(DeepSpeedJson, fp16_has_deepspeeds_numbers) {
  run_ranks(1, [](comm::World&) {
    auto engine = initialize(
        make_net(), {.config = R"({"train_batch_size": 8, "fp16": {"enabled": true, "initial_scale_power": 8}})"});
    EXPECT_TRUE(engine.fp16_enabled());
    EXPECT_EQ(engine.loss_scale(), 256);
    EXPECT_EQ(engine.training().config().optimization.loss_scale_window, 1000);
    EXPECT_EQ(engine.zero_optimization_stage(), 0);
  });
}

TEST(DeepSpeedJson, without_a_scheduler_the_rate_stays) {
  run_ranks(1, [](comm::World&) {
    auto engine = initialize(
        make_net(), {.config = R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.003}}})"});
    for (int step = 0; step < 3; ++step) {
      EXPECT_EQ(engine.get_lr().at(0), 0.003);
      const Batch batch = micro_batch(step, 0, 1);
      engine.backward((engine(batch.x) - batch.y).square().mean());
      engine.step();
    }
  });
}

TEST(DeepSpeedJson, problems_are_told_with_file_and_line) {
  const TemporaryFolder folder;
  const std::string file = path_join(folder.path(), "ds.json");
  write_file_atomically(file, "{\n  \"train_batch_size\": 8,\n  \"gradient_clipping\": -1.0\n}\n");
  try {
    faces::read_configuration({.config = file}, 1);
    FAIL();
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("ds.json:3"), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("gradient_clipping"), std::string::npos) << error.what();
  }
}

TEST(DeepSpeedJson, auto_is_filled_from_the_arguments) {
  const RunConfig config = faces::read_configuration(
      {.config = R"({"train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto", )"
                 R"("gradient_clipping": "auto"})",
       .arguments = {"--per_device_train_batch_size=6", "--gradient_accumulation_steps=2", "--max_grad_norm=0.5"}},
      2);
  EXPECT_EQ(config.optimization.per_device_train_batch_size, 6);
  EXPECT_EQ(config.optimization.gradient_accumulation_steps, 2);
  EXPECT_EQ(config.optimization.max_grad_norm, 0.5);
}

}  // namespace
