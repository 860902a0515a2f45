// The parts of DeepSpeed's face other than the loop itself, on real processes: initialize()'s results, queries,
// gradients kept local, steps of a different size, bf16 weights.
#include <tests/faces/loop.h>
#include <tests/faces/types_seen.h>
#include <tests/paths.h>

#include <tessera/faces/deepspeed.h>
#include <tessera/kernels/cpu/dispatch.h>

#include <torch/nn/modules/conv.h>

#include <tuple>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// SGD without momentum, so that a step equals its gradients.
InitializeOptions options_of(int stage, std::int64_t micro_batch, std::int64_t accumulation = 1) {
  return {.config = concat(R"({"train_micro_batch_size_per_gpu": )", micro_batch,
                           R"(, "gradient_accumulation_steps": )", accumulation,
                           R"(, "optimizer": {"type": "SGD", "params": {"lr": 0.1}}, "zero_optimization": {"stage": )",
                           stage, "}}")};
}

/// Weights after a step along the mean gradient of the losses of `micros`, times `factor`.
Weights stepped(const std::vector<std::pair<int, std::int64_t>>& micros, std::int64_t of, double factor) {
  const auto net = make_net();
  for (const auto& [step, index] : micros) (mean_loss(*net, micro_batch(step, index, of)) * factor).backward();
  Weights weights;
  for (const auto& p : net->named_parameters()) weights[p.key()] = p.value().detach() - 0.1 * p.value().grad();
  return weights;
}

at::Tensor loss_of(auto& engine, int step, std::int64_t index, std::int64_t of) {
  const Batch batch = micro_batch(step, index, of);
  return (engine(batch.x) - batch.y).square().mean();
}

TEST(DeepSpeedParts, initialize_gives_engine_optimizer_loader_and_scheduler) {
  run_ranks(2, [](comm::World&) {
    const RowSource rows = tensor_rows({at::ones({24, 12}), at::arange(24)});
    auto [engine, optimizer, loader, scheduler] = initialize(
        make_net(), {.config = R"({"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.01}},
                                   "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 10}}})",
                     .training_data = rows});
    static_assert(std::is_same_v<decltype(engine), Engine<SimpleModel>&>);
    EXPECT_EQ(loader.size(), 3);
    EXPECT_EQ(&loader, &engine.training_dataloader());
    EXPECT_TRUE(static_cast<bool>(scheduler));
    std::int64_t sum = 0;
    bool in_order = true;
    for (const auto& batch : loader) {
      EXPECT_EQ(batch[1].size(0), 4);
      sum += batch[1].sum().item<std::int64_t>();
      in_order = in_order && batch[1][3].item<std::int64_t>() - batch[1][0].item<std::int64_t>() == 3;
      engine.backward(engine(batch[0]).square().mean());
      engine.step();
    }
    at::Tensor all = at::full({1}, sum);
    world().group().all_reduce(all, comm::Reduction::sum).wait();
    EXPECT_EQ(all.item<std::int64_t>(), 23 * 24 / 2) << "each row once";
    EXPECT_FALSE(in_order) << "shuffled";
    EXPECT_EQ(optimizer.steps(), 3);
    EXPECT_EQ(scheduler.steps(), 3);
    EXPECT_EQ(optimizer.learning_rates(), engine.get_lr());
    EXPECT_EQ(scheduler.get_last_lr(), engine.get_lr());
    EXPECT_EQ(optimizer.loss_scale(), 1);

    auto [other, other_optimizer, no_loader, no_scheduler] = initialize(make_net(), options_of(0, 4));
    EXPECT_FALSE(static_cast<bool>(no_scheduler));
    EXPECT_THROW(no_loader.begin(), InputError) << "there is no data";
  });
}

TEST(DeepSpeedParts, ranks_and_the_device_can_be_asked) {
  run_ranks(3, [](comm::World& world) {
    EXPECT_EQ(&init_distributed(), &world) << "joined already";
    const auto engine = initialize(make_net(), options_of(1, 2));
    EXPECT_EQ(engine.local_rank(), world.local_rank());
    EXPECT_EQ(engine.global_rank(), world.rank());
    EXPECT_EQ(engine.world_size(), 3);
    EXPECT_EQ(engine.device(), world.device());
  });
}

TEST(DeepSpeedArguments, are_taken_out_of_the_programs) {
  std::vector<std::string> arguments = {"--epochs",       "3", "--deepspeed", "--deepspeed_config", "ds.json",
                                        "--local_rank=2", "x"};
  const ConfigArguments found = add_config_arguments(arguments);
  EXPECT_TRUE(found.deepspeed);
  EXPECT_EQ(found.deepspeed_config, "ds.json");
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(arguments, (std::vector<std::string>{"--epochs", "3", "x"}));
  EXPECT_FALSE(add_config_arguments(arguments).deepspeed);
  for (const std::vector<std::string>& wrong :
       std::vector<std::vector<std::string>>{{"--deepspeed_config"}, {"--local_rank=x"}}) {
    std::vector<std::string> copy = wrong;
    EXPECT_THROW(add_config_arguments(copy), InputError);
  }
}

TEST(DeepSpeedParts, zero_grad_forgets_what_was_there) {
  const Weights want = stepped({{1, 0}, {1, 1}}, 2, 0.5);
  run_ranks(2, [&](comm::World& world) {
    for (int stage = 0; stage <= 3; ++stage) {
      auto engine = initialize(make_net(), options_of(stage, 12));
      engine.backward(loss_of(engine, 0, world.rank(), 2));
      engine.zero_grad();
      engine.backward(loss_of(engine, 1, world.rank(), 2));
      engine.step();
      expect_close(weights_of(engine.sharded()), want, 1e-6, concat("stage ", stage));
    }
  });
}

TEST(DeepSpeedParts, gradients_stay_on_the_rank_inside_of_no_sync) {
  const Weights want = stepped({{0, 0}, {0, 1}, {1, 0}, {1, 1}}, 2, 0.5);
  run_ranks(2, [&](comm::World& world) {
    for (int stage = 0; stage <= 1; ++stage) {
      auto engine = initialize(make_net(), options_of(stage, 12));
      {
        const auto quiet = engine.no_sync();
        engine.backward(loss_of(engine, 0, world.rank(), 2));
        if (stage == 0) {  // its gradients are in the module's own parameters
          const at::Tensor local = engine.module().parameters().at(0).grad().clone(), mean = local.clone();
          world.group().all_reduce(mean, comm::Reduction::mean).wait();
          EXPECT_FALSE(at::allclose(local, mean)) << "each rank's own";
        }
        EXPECT_THROW(engine.step(), InputError);
        EXPECT_THROW(std::ignore = engine.no_sync(), InputError);
      }
      engine.backward(loss_of(engine, 1, world.rank(), 2));
      engine.step();
      expect_close(weights_of(engine.sharded()), want, 1e-6, concat("stage ", stage));
    }
    auto divided = initialize(make_net(), options_of(2, 12));
    EXPECT_THROW(std::ignore = divided.no_sync(), InputError);
  });
}

TEST(DeepSpeedParts, a_step_may_get_another_size) {
  const Weights want = stepped({{1, 0}, {1, 1}, {1, 2}, {1, 3}, {1, 4}, {1, 5}}, 6, 1.0 / 6);
  run_ranks(2, [&](comm::World& world) {
    auto engine = initialize(make_net(), options_of(2, 4, /*accumulation=*/2));
    EXPECT_EQ(engine.train_batch_size(), 16);
    EXPECT_THROW(engine.set_train_batch_size(20), InputError) << "not a multiple of 8";
    engine.backward(loss_of(engine, 0, world.rank(), 2) * 0);
    engine.step();
    EXPECT_THROW(engine.set_train_batch_size(24), InputError) << "in the middle of a step";
    engine.backward(loss_of(engine, 0, world.rank(), 2) * 0);
    engine.step();
    engine.set_train_batch_size(24);
    EXPECT_EQ(engine.gradient_accumulation_steps(), 3);
    EXPECT_EQ(engine.train_batch_size(), 24);
    EXPECT_EQ(engine.train_micro_batch_size_per_gpu(), 4);
    for (int micro = 0; micro < 3; ++micro) {
      EXPECT_EQ(engine.is_gradient_accumulation_boundary(), micro == 2);
      engine.backward(loss_of(engine, 1, micro * 2 + world.rank(), 6));
      engine.step();
      EXPECT_EQ(engine.was_step_applied(), micro == 2);
    }
    expect_close(weights_of(engine.sharded()), want, 1e-6, "24 rows");
    auto fixed = initialize(make_net(), {.arguments = {"--deterministic_reduce", "--per_device_train_batch_size=4"}});
    EXPECT_THROW(fixed.set_train_batch_size(24), InputError);
  });
}

TEST(DeepSpeedParts, the_boundary_may_be_set_by_hand) {
  const Weights want = stepped({{0, 0}, {0, 1}, {0, 2}, {0, 3}, {0, 4}, {0, 5}}, 6, 1.0 / 6);
  run_ranks(2, [&](comm::World& world) {
    for (const int stage : {0, 1, 2, 3}) {
      auto engine = initialize(make_net(), options_of(stage, 4, /*accumulation=*/3));
      engine.set_gradient_accumulation_boundary(false);
      for (int micro = 0; micro < 3; ++micro) {
        if (micro == 2) engine.set_gradient_accumulation_boundary(true);
        EXPECT_EQ(engine.is_gradient_accumulation_boundary(), micro == 2);
        engine.backward(loss_of(engine, 0, micro * 2 + world.rank(), 6));
      }
      engine.step();  // once
      EXPECT_TRUE(engine.was_step_applied());
      EXPECT_EQ(engine.global_steps(), 1);
      expect_close(weights_of(engine.sharded()), want, 1e-6, concat("stage ", stage));
    }
  });
}

TEST(DeepSpeedParts, whole_weights_come_by_name_and_stay_when_the_engine_ends) {
  run_ranks(2, [](comm::World& world) {
    for (const int stage : {0, 2, 3}) {
      const auto net = make_net();
      auto engine = initialize(net, options_of(stage, 12));
      engine.backward(loss_of(engine, 0, world.rank(), 2));
      engine.step();
      const Weights now = weights_of(engine.sharded());
      const StateDict state = engine.module_state_dict();
      if (stage == 3 && world.rank() > 0)
        EXPECT_TRUE(state.empty());
      else
        expect_same_bits(state, now, concat("stage ", stage));
      engine.destroy();
      Weights left;
      for (const auto& p : net->named_parameters()) left[p.key()] = p.value().detach();
      expect_same_bits(left, now, concat("the module after stage ", stage));
      EXPECT_TRUE(net->forward(at::ones({1, 12})).isfinite().all().item<bool>());
      EXPECT_THROW(engine.step(), InputError);
      EXPECT_THROW(engine(at::ones({1, 12})), InputError);
    }
  });
}

/// The weights' type under the JSON's bf16 on this machine: without bf16 instructions the module computes in fp32.
at::ScalarType bf16_here() { return kernels::has_bf16_instructions() ? at::kBFloat16 : at::kFloat; }

TEST(DeepSpeedBf16, makes_the_modules_weights_bf16_and_keeps_fp32_ones) {
  // the same by hand: fp32 weights, a bf16 copy that computes, its gradients averaged in fp32
  at::manual_seed(7);
  const auto master = std::make_shared<SimpleModel>();
  for (int step = 0; step < 3; ++step) {
    std::map<std::string, at::Tensor> sums;
    for (int rank = 0; rank < 2; ++rank) {
      const auto copy = std::make_shared<SimpleModel>();
      const at::NoGradGuard no_grad;
      for (const auto& p : copy->named_parameters()) p.value().copy_(master->named_parameters()[p.key()]);
      copy->to(at::kBFloat16);
      const Batch batch = micro_batch(step, rank, 2);
      {
        const at::AutoGradMode grad(true);
        (copy->forward(batch.x.to(at::kBFloat16)).to(at::kFloat) - batch.y).square().mean().backward();
      }
      for (const auto& p : copy->named_parameters()) {
        const at::Tensor half = p.value().grad().to(at::kFloat) / 2;
        sums[p.key()] = sums[p.key()].defined() ? sums[p.key()] + half : half;
      }
    }
    const at::NoGradGuard no_grad;
    for (const auto& p : master->named_parameters()) p.value().sub_(sums.at(p.key()), 0.1);
  }
  Weights want;
  for (const auto& p : master->named_parameters()) want[p.key()] = p.value().detach();
  run_ranks(2, [&](comm::World& world) {
    for (int stage = 0; stage <= 3; ++stage) {
      at::manual_seed(7);
      const auto net = std::make_shared<TypesSeen>();
      InitializeOptions options = options_of(stage, 12);
      options.config.replace(0, 1, R"({"bf16": {"enabled": true}, )");
      options.arguments = {"--param_dtype=bf16"};  // also on a processor without bf16 instructions
      auto engine = initialize(net, options);
      EXPECT_TRUE(engine.bfloat16_enabled());
      for (int step = 0; step < 3; ++step) {
        const at::Tensor loss = loss_of(engine, step, world.rank(), 2);
        EXPECT_EQ(loss.scalar_type(), at::kFloat) << "outputs are widened";
        engine.backward(loss);
        engine.step();
      }
      EXPECT_EQ(net->weights, at::kBFloat16) << "stage " << stage;
      EXPECT_EQ(net->input, at::kBFloat16);
      const Weights got = weights_of(engine.sharded());
      EXPECT_EQ(got.begin()->second.scalar_type(), at::kFloat);
      expect_close(got, want, 5e-4, concat("stage ", stage));
    }
    {  // {"train_batch_size": 4, "bf16": {"enabled": true}} in base64
      const auto net = std::make_shared<TypesSeen>();
      auto engine = initialize(net, {.config = "eyJ0cmFpbl9iYXRjaF9zaXplIjogNCwgImJmMTYiOiB7ImVuYWJsZWQiOiB0cnVlfX0="});
      engine(at::ones({1, 12}));
      EXPECT_EQ(net->weights, bf16_here());
    }
    InitializeOptions autocast = options_of(1, 12);
    autocast.config.replace(0, 1, R"({"torch_autocast": {"enabled": true, "dtype": "bfloat16"}, )");
    const auto net = std::make_shared<TypesSeen>();
    auto engine = initialize(net, autocast);
    engine(at::ones({1, 12}));
    EXPECT_EQ(net->weights, at::kFloat) << "autocast does not change weights";
  });
}

TEST(DeepSpeedBf16, is_what_the_json_says_wherever_it_stands) {
  run_ranks(1, [](comm::World&) {
    const auto weights = [](const InitializeOptions& options) {
      const auto net = std::make_shared<TypesSeen>();
      auto engine = initialize(net, options);
      engine(at::ones({1, 12}));
      return net->weights;
    };
    const std::string json = R"({"train_micro_batch_size_per_gpu": 4, "bf16": {"enabled": )";
    EXPECT_EQ(weights({.config = json + R"("auto"}})", .arguments = {"--bf16"}}), bf16_here());
    EXPECT_EQ(weights({.config = json + R"("auto"}})", .arguments = {"--seed=1"}}), at::kFloat);
    EXPECT_EQ(weights({.arguments = {concat("--deepspeed=", json, "true}}")}}), bf16_here());
    EXPECT_EQ(weights({.arguments = {"--bf16"}}), at::kFloat);
  });
}

TEST(DeepSpeedParts, what_belonged_to_an_engine_throws_after_it) {
  run_ranks(1, [](comm::World&) {
    auto [engine, optimizer, loader, scheduler] = initialize(make_net(), options_of(0, 24));
    EXPECT_EQ(optimizer.learning_rates(), std::vector<double>{0.1});
    EXPECT_EQ(scheduler.steps(), 0);
    engine.destroy();
    EXPECT_THROW(optimizer.learning_rates(), InputError);
    EXPECT_THROW(optimizer.zero_grad(), InputError);
    EXPECT_THROW(scheduler.get_last_lr(), InputError);
    EXPECT_THROW(scheduler.steps(), InputError);
    EXPECT_THROW(engine.save_model("none"), InputError);
  });
}

TEST(DeepSpeedParts, weights_loaded_in_the_middle_of_a_step_begin_it_anew) {
  const TemporaryFolder folder;
  run_ranks(2, [&](comm::World& world) {
    auto engine = initialize(make_net(), options_of(0, 4, 3));
    const auto micro_step = [&](int i) {
      engine.backward(loss_of(engine, 0, 2 * i + world.rank(), 6));
      engine.step();
      return engine.was_step_applied();
    };
    engine.save_checkpoint(folder.path());
    EXPECT_FALSE(micro_step(0));
    engine.load_checkpoint(folder.path(), "", {.load_optimizer_states = false});
    for (int i = 0; i < 3; ++i) EXPECT_EQ(micro_step(i), i == 2) << "micro-batch " << i;
  });
}

struct SmallConvNet : torch::nn::Module {
  SmallConvNet() {
    register_module("convolution", convolution);
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) { return head(at::relu(convolution(x)).flatten(1)); }
  torch::nn::Conv2d convolution{torch::nn::Conv2dOptions(3, 4, 3)};
  torch::nn::Linear head{4 * 6 * 6, 10};
};

TEST(DeepSpeedBf16, the_configuration_of_the_cifar_example_runs_as_it_is) {
  run_ranks(2, [](comm::World&) {
    at::manual_seed(3);
    const at::Tensor labels = at::arange(64) % 10, images = at::randn({64, 3, 8, 8});
    images.select(1, 0).add_(labels.view({64, 1, 1}) - 4.5);
    auto [engine, optimizer, loader, scheduler] = initialize(
        std::make_shared<SmallConvNet>(),
        {.config = source_path("tests/fixtures/deepspeed/cifar.json"), .training_data = tensor_rows({images, labels})});
    EXPECT_TRUE(engine.bfloat16_enabled());
    EXPECT_FALSE(engine.fp16_enabled());
    EXPECT_EQ(engine.loss_scale(), 1);
    EXPECT_EQ(engine.train_micro_batch_size_per_gpu(), 8);
    double first = 0, last = 0;
    for (int epoch = 0; epoch < 12; ++epoch) {
      last = 0;
      for (const auto& batch : loader) {
        const at::Tensor loss = at::cross_entropy_loss(engine(batch[0].to(at::kBFloat16)), batch[1]);
        engine.backward(loss);
        engine.step();
        last += loss.item<double>();
      }
      if (epoch == 0) first = last;
    }
    EXPECT_LT(last, 0.8 * first);
    EXPECT_EQ(scheduler.steps(), 48);
  });
}

}  // namespace
