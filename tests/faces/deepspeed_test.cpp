// tessera::initialize: DeepSpeed's engine around a plain module, on real processes.
#include <tests/faces/loop.h>

#include <tessera/base/file.h>
#include <tessera/faces/deepspeed.h>

#include <torch/nn/modules/dropout.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <limits>

namespace {

using namespace tessera;
using namespace tessera::testing;

std::vector<std::string> flags(int stage, std::int64_t accumulation, std::vector<std::string> more = {}) {
  std::vector<std::string> all = {concat("--zero_stage=", stage),
                                  concat("--gradient_accumulation_steps=", accumulation), "--learning_rate=0.002",
                                  "--weight_decay=0.01"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

template <class E>
double train_one_step(E& engine, comm::World& world, int step) {
  const std::int64_t A = engine.gradient_accumulation_steps(), V = A * world.size();
  double sum = 0;
  for (std::int64_t m = 0; m < A; ++m) {
    EXPECT_EQ(engine.is_gradient_accumulation_boundary(), m + 1 == A);
    const Batch batch = micro_batch(step, m * world.size() + world.rank(), V);
    const at::Tensor loss = (engine(batch.x) - batch.y).square().mean();
    engine.backward(loss);
    engine.step();
    sum += loss.template item<double>();
  }
  return sum / static_cast<double>(A);
}

class DeepSpeedRanks : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, DeepSpeedRanks, ::testing::Values(1, 2, 4));

TEST_P(DeepSpeedRanks, fixed_order_has_the_bits_of_the_plain_loop) {
  const int ranks = GetParam();
  constexpr int steps = 6;
  constexpr std::int64_t accumulation = 3;
  const Plain plain = train_plain(accumulation * ranks, steps, decay_all, [](int) { return 0.002; });
  run_ranks(ranks, [&](comm::World& world) {
    for (int stage = 0; stage <= 3; ++stage) {
      auto engine = initialize(make_net(), {.arguments = flags(stage, accumulation, {"--deterministic_reduce"})});
      EXPECT_EQ(engine.zero_optimization_stage(), stage);
      EXPECT_EQ(engine.train_batch_size(), 8 * accumulation * ranks);
      for (int step = 0; step < steps; ++step) {
        train_one_step(engine, world, step);
        EXPECT_EQ(engine.get_global_grad_norm(), plain.norms[static_cast<std::size_t>(step)]) << "stage " << stage;
      }
      EXPECT_EQ(engine.global_steps(), steps);
      EXPECT_EQ(engine.micro_steps(), steps * accumulation);
      expect_same_bits(weights_of(engine.sharded()), plain.weights, concat("stage ", stage));
    }
  });
}

TEST_P(DeepSpeedRanks, fast_order_is_within_the_contract) {
  const int ranks = GetParam();
  constexpr int steps = 6;
  const Plain plain = train_plain(2 * ranks, steps, decay_all, [](int) { return 0.002; });
  run_ranks(ranks, [&](comm::World& world) {
    for (int stage = 0; stage <= 3; ++stage) {
      auto engine = initialize(make_net(), {.arguments = flags(stage, 2)});
      for (int step = 0; step < steps; ++step) {
        at::Tensor loss = at::full({1}, train_one_step(engine, world, step), at::kDouble);
        world.group().all_reduce(loss, comm::Reduction::mean).wait();
        EXPECT_NEAR(loss.item<double>() / plain.losses[static_cast<std::size_t>(step)], 1, 1e-6);
      }
      expect_close(weights_of(engine.sharded()), plain.weights, 2e-5, concat("stage ", stage));
    }
  });
}

TEST(DeepSpeed, weights_change_at_the_boundary_only) {
  run_ranks(2, [](comm::World& world) {
    auto engine = initialize(make_net(), {.arguments = flags(2, 3)});
    Weights before = weights_of(engine.sharded());
    for (int micro = 0; micro < 6; ++micro) {
      const Batch batch = micro_batch(0, micro, 6);
      const bool boundary = engine.is_gradient_accumulation_boundary();
      EXPECT_EQ(boundary, micro % 3 == 2);
      engine.backward((engine(batch.x) - batch.y).square().mean());
      engine.step();
      const Weights after = weights_of(engine.sharded());
      EXPECT_EQ(at::equal(before.begin()->second, after.begin()->second), !boundary) << "micro-batch " << micro;
      EXPECT_EQ(engine.was_step_applied(), boundary);
      before = after;
    }
  });
}

TEST(DeepSpeed, a_step_whose_fp16_gradients_overflow_anywhere_is_skipped_everywhere) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 2, 3}) {
      auto engine = initialize(
          make_net(),
          {.arguments = flags(stage, 1, {"--fp16", "--lr_scheduler_type=constant_with_warmup", "--warmup_steps=10"})});
      EXPECT_TRUE(engine.fp16_enabled());
      train_one_step(engine, world, 0);  // the first rate is 0
      train_one_step(engine, world, 1);
      const double scale = engine.loss_scale(), rate = engine.get_lr().at(0);
      EXPECT_EQ(scale, 65536);
      const Weights before = weights_of(engine.sharded());
      const Batch batch = micro_batch(2, world.rank(), 2);
      const at::Tensor loss = (engine(batch.x) - batch.y).square().mean();
      engine.backward(world.rank() == 1 ? loss * 1e37 : loss);
      engine.step();
      EXPECT_FALSE(engine.was_step_applied());
      EXPECT_EQ(engine.skipped_steps(), 1);
      EXPECT_EQ(engine.global_steps(), 3);
      EXPECT_EQ(engine.loss_scale(), scale / 2);
      EXPECT_EQ(engine.get_lr().at(0), rate) << "the schedule waits";
      expect_same_bits(weights_of(engine.sharded()), before, "skipped step");
      const double next = train_one_step(engine, world, 3);
      EXPECT_TRUE(engine.was_step_applied());
      EXPECT_TRUE(std::isfinite(next));
      EXPECT_TRUE(std::isfinite(engine.get_global_grad_norm()));
      EXPECT_GT(engine.get_lr().at(0), rate);
    }
  });
}

TEST(DeepSpeed, without_fp16_a_norm_that_is_not_finite_is_an_error_that_names_the_rank) {
  const auto outcomes = run_ranks_outcomes(2, [](comm::World& world) {
    auto engine = initialize(make_net(), {.arguments = flags(2, 1)});
    const Batch batch = micro_batch(0, world.rank(), 2);
    const at::Tensor loss = (engine(batch.x) - batch.y).square().mean();
    engine.backward(world.rank() == 1 ? loss * std::numeric_limits<double>::infinity() : loss);
    engine.step();
  });
  for (const RankOutcome& outcome : outcomes)
    EXPECT_NE(outcome.error.find("rank 1"), std::string::npos) << outcome.error;
}

TEST(DeepSpeed, continues_with_the_same_bits_from_its_checkpoint) {
  const TemporaryFolder folder;
  struct Net : Model {
    torch::nn::Linear in{12, 32}, out{32, 5};
    torch::nn::Dropout dropout{0.3};
    torch::nn::BatchNorm1d norm{32};
    Net() {
      register_module("in", in);
      register_module("dropout", dropout);
      register_module("norm", norm);
      register_module("out", out);
    }
    at::Tensor forward(at::Tensor x) override { return out(dropout(norm(in(x)))); }
  };
  const auto make = [] {
    at::manual_seed(7);
    return std::make_shared<Net>();
  };
  for (const int stage : {0, 1, 2, 3}) {
    run_ranks(2, [&](comm::World& world) {
      const std::vector<std::string> arguments = flags(stage, 2, {"--lr_scheduler_type=linear", "--max_steps=20"});
      at::manual_seed(50 + static_cast<std::uint64_t>(world.rank()));
      Weights want;
      {
        auto engine = initialize(make(), {.arguments = arguments});
        for (int step = 0; step < 6; ++step) {
          if (step == 3) engine.save_checkpoint(folder.path(), "", Value::make_object({{"epoch", Value::of(5)}}));
          train_one_step(engine, world, step);
        }
        want = weights_of(engine.sharded());
      }
      auto engine = initialize(make(), {.arguments = arguments});
      for (int step = 0; step < 2; ++step) train_one_step(engine, world, step);  // the previous state must not matter
      const auto loaded = engine.load_checkpoint(folder.path());
      ASSERT_TRUE(loaded.has_value());
      EXPECT_EQ(loaded->path, path_join(folder.path(), "global_step3"));
      EXPECT_EQ(loaded->client_state.at("epoch").as_int(), 5);
      EXPECT_EQ(engine.global_steps(), 3);
      for (int step = 3; step < 6; ++step) train_one_step(engine, world, step);
      expect_same_bits(weights_of(engine.sharded()), want, concat("stage ", stage));
    });
  }
}

TEST(DeepSpeed, another_stage_and_number_of_ranks_continue_a_checkpoint) {
  const TemporaryFolder folder;
  constexpr int steps = 6;
  const Plain plain = train_plain(4, steps, decay_all, [](int) { return 0.002; });
  const auto arguments = [](int stage, int accumulation) {
    return flags(stage, accumulation, {"--deterministic_reduce"});
  };
  run_ranks(4, [&](comm::World& world) {
    auto engine = initialize(make_net(), {.arguments = arguments(3, 1)});
    for (int step = 0; step < 3; ++step) train_one_step(engine, world, step);
    engine.save_checkpoint(folder.path(), "half");
  });
  for (const int ranks : {1, 2})
    run_ranks(ranks, [&](comm::World& world) {
      auto engine = initialize(make_net(), {.arguments = arguments(ranks, 4 / ranks)});
      engine.load_checkpoint(folder.path(), "half", {.load_random_states = false});
      for (int step = 3; step < steps; ++step) train_one_step(engine, world, step);
      expect_same_bits(weights_of(engine.sharded()), plain.weights, concat(ranks, " ranks"));
    });
}

TEST(DeepSpeed, a_damaged_or_foreign_checkpoint_is_refused) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    auto engine = initialize(make_net(), {.arguments = flags(3, 1)});
    EXPECT_FALSE(engine.load_checkpoint(folder.path()).has_value()) << "nothing there";
    train_one_step(engine, world, 0);
    engine.save_checkpoint(folder.path(), "a");
    const auto refused = [&](auto& other) {
      try {
        other.load_checkpoint(folder.path(), "a");
      } catch (const Error& error) {
        return std::string("refused: ") + error.what();
      }
      return std::string();
    };
    at::manual_seed(1);
    auto other = initialize(std::make_shared<SharedModel>(), {.arguments = flags(3, 1)});
    const std::string foreign = refused(other);
    EXPECT_EQ(foreign.find("refused: "), 0u);
    if (world.rank() == 0) {  // only one rank gives the reason
      EXPECT_NE(foreign.find("a different model"), std::string::npos) << foreign;
    }
    world.group().barrier().wait();
    if (world.rank() == 0) {
      const std::string path = path_join(path_join(folder.path(), "a"), "optimizer-00002-of-00002.safetensors");
      std::string bytes = read_file(path);
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      write_file_atomically(path, bytes);
    }
    world.group().barrier().wait();
    EXPECT_EQ(refused(engine).find("refused: "), 0u);
  });
}

/// torch's own loop in one process against the same optimizer object under ZeRO.
TEST(DeepSpeed, an_optimizer_of_the_users_works_on_shards) {
  constexpr int steps = 5;
  const auto make_adamw = [](const torch::nn::Module& net) {
    return std::make_unique<torch::optim::AdamW>(net.parameters(), torch::optim::AdamWOptions(2e-3).weight_decay(0.01));
  };
  const auto make_sgd = [](const torch::nn::Module& net) {
    return std::make_unique<torch::optim::SGD>(net.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9));
  };
  for (const bool adam : {true, false}) {
    const auto make = [&](const torch::nn::Module& net) -> std::unique_ptr<torch::optim::Optimizer> {
      if (adam) return make_adamw(net);
      return make_sgd(net);
    };
    const auto net = make_net();
    const auto alone = make(*net);
    for (int step = 0; step < steps; ++step) {
      alone->zero_grad();
      mean_loss(*net, global_batch(step, all_rows)).backward();
      std::vector<at::Tensor> grads;
      for (const at::Tensor& p : net->parameters()) grads.push_back(p.grad());
      const double coefficient = optim::clip_coefficient(optim::gradient_norm(grads), 1.0);
      for (at::Tensor& grad : grads) grad.mul_(coefficient);
      for (auto& group : alone->param_groups()) group.options().set_lr((adam ? 2e-3 : 0.05) / (1 + step));
      alone->step();
    }
    Weights want;
    for (const auto& p : net->named_parameters()) want[p.key()] = p.value().detach().clone();
    const TemporaryFolder folder;
    run_ranks(2, [&](comm::World& world) {
      for (int stage = 0; stage <= 3; ++stage) {
        const auto begin = [&](std::unique_ptr<torch::optim::Optimizer>& optimizer) {
          const auto mine = make_net();
          optimizer = make(*mine);
          return initialize(mine, {.arguments = flags(stage, 1),
                                   .optimizer = optimizer.get(),
                                   .lr_lambda = [](std::int64_t step) { return 1.0 / static_cast<double>(1 + step); }});
        };
        std::unique_ptr<torch::optim::Optimizer> optimizer, again;
        auto engine = begin(optimizer);
        for (int step = 0; step < steps; ++step) {
          if (step == 2) engine.save_checkpoint(folder.path());
          train_one_step(engine, world, step);
        }
        const Weights got = weights_of(engine.sharded());
        expect_close(got, want, 1e-5, concat("stage ", stage));
        auto resumed = begin(again);
        resumed.load_checkpoint(folder.path());
        for (int step = 2; step < steps; ++step) train_one_step(resumed, world, step);
        expect_same_bits(weights_of(resumed.sharded()), got, concat("resumed, stage ", stage));
      }
    });
  }
}

TEST(DeepSpeed, whole_weights_are_saved_in_files_of_a_size) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    auto engine = initialize(make_net(), {.arguments = flags(3, 1)});
    engine.save_model(folder.path());
    EXPECT_TRUE(path_exists(path_join(folder.path(), "model.safetensors")));
  });
}

TEST(DeepSpeed, loader_gives_each_rank_its_rows) {
  run_ranks(4, [](comm::World& world) {
    auto engine = initialize(make_net(), {.arguments = flags(1, 1, {"--per_device_train_batch_size=2"})});
    auto loader = engine.deepspeed_io(tensor_rows({at::arange(19)}), /*shuffle=*/false);
    std::vector<std::int64_t> rows;
    for (const auto& batch : loader)
      for (std::int64_t i = 0; i < batch[0].size(0); ++i) rows.push_back(batch[0][i].item<std::int64_t>());
    EXPECT_EQ(static_cast<std::int64_t>(rows.size()), 6) << "19 rows in rounds of 8: three batches of two each";
    EXPECT_EQ(rows[0], world.rank() * 2);
    EXPECT_EQ(rows[2], 8 + world.rank() * 2);
  });
}

TEST(DeepSpeed, wrong_settings_are_input_errors) {
  run_ranks(1, [](comm::World&) {
    EXPECT_THROW(initialize(make_net(), {.arguments = {"--zero_stage=7"}}), InputError);
    EXPECT_THROW(initialize(std::shared_ptr<SimpleModel>(), {}), InputError);
    EXPECT_THROW(initialize(make_net(), {.arguments = {"--lr_scheduler_type=linear"}}), InputError)
        << "needs --max_steps";
    auto engine = initialize(make_net(), {});
    EXPECT_THROW(engine.backward(engine(at::ones({2, 12}))), InputError) << "ten numbers";
  });
}

}  // namespace
