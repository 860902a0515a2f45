// tessera::Accelerator with several models, each with its own optimizer.
#include <tests/faces/loop.h>

#include <tessera/base/file.h>
#include <tessera/faces/accelerator.h>

#include <torch/optim/adamw.h>
#include <torch/optim/schedulers/step_lr.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <set>

namespace {

using namespace tessera;
using namespace tessera::testing;

/// x [B, 5] -> [B, 1]: scores the outputs of SimpleModel.
struct JudgeImpl : torch::nn::Module {
  torch::nn::Linear in{5, 16}, out{16, 1};
  JudgeImpl() {
    register_module("in", in);
    register_module("out", out);
  }
  at::Tensor forward(const at::Tensor& x) { return out(at::tanh(in(x))); }
};
TORCH_MODULE(Judge);

Judge make_judge() {
  at::manual_seed(8);
  return Judge();
}

/// A model that produces outputs and a model that distinguishes them from the true ones: each loss depends on what the
/// other model learns.
at::Tensor judge_loss(const at::Tensor& true_scores, const at::Tensor& made_scores) {
  return (true_scores - 1).square().mean() + made_scores.square().mean();
}
at::Tensor maker_loss(const at::Tensor& made_scores) { return (made_scores - 1).square().mean(); }

struct Both {
  Weights maker, judge;
};
Weights plain_weights(const torch::nn::Module& net) {
  Weights weights;
  for (const auto& p : net.named_parameters()) weights[p.key()] = p.value().detach().clone();
  return weights;
}

constexpr int steps = 4;
torch::optim::AdamWOptions maker_options() { return torch::optim::AdamWOptions(2e-3); }
torch::optim::SGDOptions judge_options() { return torch::optim::SGDOptions(0.05).momentum(0.9); }

/// torch's own loop in one process.
Both train_plain() {
  const auto maker = make_net();
  Judge judge = make_judge();
  torch::optim::AdamW maker_optimizer(maker->parameters(), maker_options());
  torch::optim::SGD judge_optimizer(judge->parameters(), judge_options());
  const auto clip = [](const torch::nn::Module& net, double max) {
    std::vector<at::Tensor> grads;
    for (const at::Tensor& p : net.parameters()) grads.push_back(p.grad());
    const double factor = optim::clip_coefficient(optim::gradient_norm(grads), max);
    for (at::Tensor& grad : grads) grad.mul_(factor);
  };
  for (int step = 0; step < steps; ++step) {
    const Batch batch = global_batch(step, all_rows);
    const at::Tensor made = maker->forward(batch.x);
    judge_optimizer.zero_grad();
    judge_loss(judge->forward(batch.y), judge->forward(made.detach())).backward();
    clip(*judge, 0.5);
    judge_optimizer.step();
    maker_optimizer.zero_grad();
    maker_loss(judge->forward(made)).backward();  // through the judge, which is not updated by this loss
    clip(*maker, 0.01);
    maker_optimizer.step();
  }
  return {plain_weights(*maker), plain_weights(*judge)};
}

class AcceleratorModels : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(All, AcceleratorModels, ::testing::Values(1, 2, 4));

TEST_P(AcceleratorModels, two_models_learn_from_each_other) {
  const Both want = train_plain();
  run_ranks(GetParam(), [&](comm::World& world) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "full_shard"}) {
      Accelerator accelerator({.arguments = {concat("--strategy=", strategy)}});
      const auto maker_net = make_net();
      Judge judge_net = make_judge();
      torch::optim::AdamW adamw(maker_net->parameters(), maker_options());
      torch::optim::SGD sgd(judge_net->parameters(), judge_options());
      auto [maker, judge, maker_optimizer, judge_optimizer] = accelerator.prepare(maker_net, judge_net, adamw, sgd);
      for (int step = 0; step < steps; ++step) {
        const Batch batch = micro_batch(step, world.rank(), world.size());
        const auto scope = accelerator.accumulate(maker, judge);
        const at::Tensor made = maker(batch.x);
        judge_optimizer.zero_grad();
        accelerator.backward(judge_loss(judge(batch.y), judge(made.detach())));
        accelerator.clip_grad_norm_(judge, 0.5);
        judge_optimizer.step();
        maker_optimizer.zero_grad();
        accelerator.backward(maker_loss(judge(made)));
        EXPECT_GT(accelerator.clip_grad_norm_(maker, 0.01), 0.01) << "clipping matters here";
        maker_optimizer.step();
      }
      expect_close(weights_of(maker.training().sharded()), want.maker, 2e-5, concat("maker, ", strategy));
      expect_close(weights_of(judge.training().sharded()), want.judge, 2e-5, concat("judge, ", strategy));
    }
  });
}

/// One Accelerator for both models gives the same bits as one for each, with accumulation, bf16, and both losses in one
/// backward.
TEST_P(AcceleratorModels, models_that_do_not_touch_are_trained_as_apart) {
  run_ranks(GetParam(), [](comm::World& world) {
    for (const char* strategy : {"ddp", "zero2", "full_shard"}) {
      const AcceleratorOptions settings{
          .gradient_accumulation_steps = 2, .mixed_precision = "bf16", .arguments = {concat("--strategy=", strategy)}};
      const OptimizerSettings adamw{.lr = 0.01}, lamb{.name = "lamb", .lr = 0.02};
      const std::int64_t of_all_ranks = 10 * world.size();  // a schedule takes one step per rank
      const optim::Schedule falling{.type = ScheduleType::linear, .total_steps = of_all_ranks, .learning_rate = 0.01};
      Accelerator together(settings), first(settings), second(settings);
      auto [a, b, optimizer_a, optimizer_b, scheduler] =
          together.prepare(make_net(), make_judge(), adamw, lamb, falling);
      auto [alone_a, alone_optimizer_a, alone_scheduler] = first.prepare(make_net(), adamw, falling);
      auto [alone_b, alone_optimizer_b] = second.prepare(make_judge(), lamb);
      for (int micro = 0; micro < 6; ++micro) {
        const Batch batch = micro_batch(micro, world.rank(), world.size());
        const auto loss_a = [&](auto& model) { return (model(batch.x) - batch.y).square().mean(); };
        const auto loss_b = [&](auto& model) { return model(batch.y).square().mean(); };
        const auto scope = together.accumulate(a, b);
        together.backward(loss_a(a) + loss_b(b));
        optimizer_a.step();
        scheduler.step();
        optimizer_b.step();
        optimizer_a.zero_grad();
        optimizer_b.zero_grad();
        const auto scope_a = first.accumulate();
        first.backward(loss_a(alone_a));
        alone_optimizer_a.step();
        alone_scheduler.step();
        alone_optimizer_a.zero_grad();
        const auto scope_b = second.accumulate();
        second.backward(loss_b(alone_b));
        alone_optimizer_b.step();
        alone_optimizer_b.zero_grad();
      }
      expect_same_bits(weights_of(a.training().sharded()), weights_of(alone_a.training().sharded()), strategy);
      expect_same_bits(weights_of(b.training().sharded()), weights_of(alone_b.training().sharded()), strategy);
      EXPECT_EQ(optimizer_a.learning_rates(), alone_optimizer_a.learning_rates());
      EXPECT_NEAR(optimizer_a.learning_rates().at(0), 0.007, 1e-12);
      EXPECT_EQ(optimizer_b.learning_rates().at(0), 0.02) << "it has no schedule";
    }
  });
}

TEST_P(AcceleratorModels, the_norm_may_be_of_one_model_or_of_all) {
  run_ranks(GetParam(), [](comm::World& world) {
    Accelerator accelerator({.arguments = {"--strategy=zero2"}});
    auto [a, b, optimizer_a, optimizer_b] = accelerator.prepare(
        make_net(), make_judge(), OptimizerSettings{.name = "sgd", .lr = 1}, OptimizerSettings{.name = "sgd", .lr = 1});
    const Batch batch = micro_batch(0, world.rank(), world.size());
    accelerator.backward((a(batch.x) - batch.y).square().mean() + b(batch.y).square().mean());
    const double of_a = accelerator.clip_grad_norm_(a, 1e9), of_b = accelerator.clip_grad_norm_(b, 1e9);
    EXPECT_GT(of_a, 0);
    EXPECT_GT(of_b, 0);
    const double all = accelerator.clip_grad_norm_(0.1);
    EXPECT_NEAR(all, std::hypot(of_a, of_b), 1e-9 * all);
    const Weights before_a = weights_of(a.training().sharded()), before_b = weights_of(b.training().sharded());
    optimizer_a.step();
    optimizer_b.step();
    const auto moved = [](const Weights& from, const Weights& to) {
      double squares = 0;
      for (const auto& [name, value] : from)
        squares += (to.at(name) - value).to(at::kDouble).square().sum().item<double>();
      return std::sqrt(squares);
    };
    EXPECT_NEAR(moved(before_a, weights_of(a.training().sharded())), 0.1 * of_a / all, 1e-5);
    EXPECT_NEAR(moved(before_b, weights_of(b.training().sharded())), 0.1 * of_b / all, 1e-5);
  });
}

/// One run of a program; saves after two of four steps, or starts from that checkpoint.
Both live(const std::string& folder, bool resume, const std::vector<std::string>& arguments) {
  // with split_batches schedules step alike on any number of ranks, so one rank can continue what two began
  Accelerator accelerator({.split_batches = true, .arguments = arguments});
  const auto maker_net = make_net();
  Judge judge_net = make_judge();
  torch::optim::AdamW adamw(maker_net->parameters(), maker_options());
  torch::optim::SGD sgd(judge_net->parameters(), judge_options());
  torch::optim::StepLR maker_decay(adamw, 1, 0.5), judge_decay(sgd, 2, 0.1);
  auto [maker, maker_optimizer, maker_scheduler] = accelerator.prepare(maker_net, adamw, maker_decay);
  auto [judge, judge_optimizer, judge_scheduler] = accelerator.prepare(judge_net, sgd, judge_decay);  // called again
  if (resume) accelerator.load_state(folder);
  for (int step = resume ? 2 : 0; step < 4; ++step) {
    if (step == 2 && !resume) accelerator.save_state(folder);
    const Batch batch = micro_batch(step, accelerator.process_index(), accelerator.num_processes());
    const auto scope = accelerator.accumulate();
    accelerator.backward((maker(batch.x) - batch.y).square().mean() + judge(batch.y).square().mean());
    maker_optimizer.step();
    judge_optimizer.step();
    maker_scheduler.step();
    judge_scheduler.step();
    maker_optimizer.zero_grad();
    judge_optimizer.zero_grad();
  }
  // LibTorch's StepLR does nothing in its first step()
  EXPECT_NEAR(maker_optimizer.learning_rates().at(0), 2e-3 / 8, 1e-12);
  EXPECT_NEAR(judge_optimizer.learning_rates().at(0), 0.005, 1e-12);
  return {weights_of(maker.training().sharded()), weights_of(judge.training().sharded())};
}

TEST(Accelerator, several_models_are_saved_under_accelerates_names_and_go_on_with_the_same_bits) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{},
                                             {"--fsdp", "full_shard auto_wrap"},
                                             {"--zero_stage", "1"},
                                             {"--fsdp", "full_shard", "--save_state_dict_type", "FULL_STATE_DICT"}}) {
    const TemporaryFolder folder;
    const std::string saved = path_join(folder.path(), "state");
    run_ranks(2, [&](comm::World&) {
      const Both whole = live(saved, false, arguments), rest = live(saved, true, arguments);
      expect_same_bits(rest.maker, whole.maker, "maker");
      expect_same_bits(rest.judge, whole.judge, "judge");
    });
    const bool full = !arguments.empty() && arguments.back() == "FULL_STATE_DICT";
    for (const char* stem : {"model", "model_1", "optimizer", "optimizer_1", "model_2"})
      EXPECT_EQ(path_exists(path_join(saved, concat(stem, full ? ".safetensors" : ".safetensors.index.json"))),
                stem != std::string("model_2"))
          << stem;
    run_ranks(1, [&](comm::World&) {
      Accelerator one;
      auto [model, optimizer] = one.prepare(make_net(), OptimizerSettings{});
      try {
        one.load_state(saved);
        FAIL() << "one model too few";
      } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("saved with 2 models, but there are 1"), std::string::npos)
            << error.what();
      }
    });
    run_ranks(1, [&](comm::World&) {
      const TemporaryFolder other;
      const Both whole = live(path_join(other.path(), "x"), false, {}), rest = live(saved, true, {});
      expect_close(rest.maker, whole.maker, 2e-5, "two ranks' steps continued by one");
      expect_close(rest.judge, whole.judge, 2e-5, "two ranks' steps continued by one");
    });
  }
}

/// fp16: both models share one loss scale, which each step of either adapts.
AcceleratorOptions half_precision(const std::string& strategy, std::int64_t accumulation = 1) {
  return {.gradient_accumulation_steps = accumulation,
          .mixed_precision = "fp16",
          .arguments = {"--strategy=" + strategy, "--initial_scale_power=10", "--loss_scale_window=3"}};
}
const OptimizerSettings plain_sgd{.name = "sgd", .lr = 1};

/// The rows show the behaviour of accelerate 1.15 (torch 2.11): two AcceleratedOptimizers with one
/// GradScaler(init_scale = 1024, growth_interval = 3), whose scale() applies to each loss and whose update() follows
/// each step.
TEST(Accelerator, several_models_in_fp16_have_one_loss_scale_as_accelerate_has_one_scaler) {
  const std::vector<double> accelerates = {1024, 1024, 2048, 2048, 1024, 1024, 1024, 512, 512, 512,
                                           256,  128,  128,  64,   64,   64,   128,  128, 128, 256};
  const std::vector<bool> skipped = {false, false, false, false, true,  false, false, true,  false, false,
                                     true,  true,  false, true,  false, false, false, false, false, false};
  run_ranks(2, [&](comm::World& world) {
    for (const char* strategy : {"ddp", "full_shard"}) {
      Accelerator accelerator(half_precision(strategy));
      auto [a, b, optimizer_a, optimizer_b] =
          accelerator.prepare(torch::nn::Linear(12, 1), torch::nn::Linear(12, 1), plain_sgd, plain_sgd);
      const std::set<int> bad_a = {2, 5}, bad_b = {3, 5, 6};
      std::vector<double> scales;
      std::vector<bool> skips;
      const auto step = [&](auto& model, auto& optimizer, bool overflows) {
        const Batch batch = micro_batch(0, world.rank(), 2);
        optimizer.zero_grad();
        const at::Tensor loss = model(batch.x).mean();
        accelerator.backward(overflows && world.rank() == 1 ? loss * std::numeric_limits<float>::infinity() : loss);
        optimizer.step();
        scales.push_back(accelerator.training().loss_scale()->scale());
        skips.push_back(optimizer.step_was_skipped());
      };
      for (int i = 0; i < 10; ++i) {
        step(a, optimizer_a, bad_a.count(i) > 0);
        step(b, optimizer_b, bad_b.count(i) > 0);
      }
      EXPECT_EQ(scales, accelerates) << strategy;
      EXPECT_EQ(skips, skipped) << strategy;
    }
  });
}

/// A case in which Accelerate divides by the wrong scale: the other model's step has changed it between these
/// gradients' backward and their own step, or between two micro-batches.
TEST(Accelerator, gradients_follow_a_loss_scale_that_another_models_step_has_changed) {
  run_ranks(2, [&](comm::World& world) {
    for (const char* strategy : {"ddp", "zero1", "zero2", "full_shard"})
      for (const std::int64_t accumulation : {1, 2}) {
        Accelerator accelerator(half_precision(strategy, accumulation));
        auto [a, b, optimizer_a, optimizer_b] =
            accelerator.prepare(torch::nn::Linear(12, 1), torch::nn::Linear(12, 1), plain_sgd, plain_sgd);
        const auto moved_by_step = [&](bool overflows) {
          const Weights before = weights_of(b.training().sharded());
          for (std::int64_t micro = 0; micro < accumulation; ++micro) {
            const Batch batch = micro_batch(0, micro * 2 + world.rank(), 2 * accumulation);
            const auto scope = accelerator.accumulate();
            const at::Tensor loss_a = a(batch.x).mean();
            const bool now = overflows && micro + 1 == accumulation && world.rank() == 1;
            accelerator.backward(now ? loss_a * std::numeric_limits<float>::infinity() : loss_a);
            if (accumulation == 1) accelerator.backward(b(batch.x).mean());  // before a's step
            optimizer_a.step();
            if (accumulation > 1) accelerator.backward(b(batch.x).mean());
            optimizer_b.step();
            optimizer_a.zero_grad();
            optimizer_b.zero_grad();
          }
          EXPECT_EQ(optimizer_a.step_was_skipped(), overflows);
          EXPECT_FALSE(optimizer_b.step_was_skipped());
          Weights moved;
          for (const auto& [name, value] : weights_of(b.training().sharded())) moved[name] = value - before.at(name);
          return moved;
        };
        const Weights ordinary = moved_by_step(false), other_scale = moved_by_step(true);
        expect_close(other_scale, ordinary, 1e-5, concat(strategy, ", accumulation ", accumulation));
        EXPECT_GT(ordinary.at("bias").abs().max().item<double>(), 0.9) << "d mean / d bias is 1";
      }
  });
}

TEST(Accelerator, models_and_optimizers_that_do_not_pair_are_input_errors) {
  const TemporaryFolder folder;
  run_ranks(1, [&](comm::World&) {
    const auto a = make_net();
    Judge b = make_judge();
    torch::optim::AdamW of_a(a->parameters()), of_b(b->parameters());
    torch::optim::StepLR decay(of_a, 1);
    EXPECT_THROW(Accelerator().prepare(a, b, OptimizerSettings{}), InputError) << "one optimizer too few";
    EXPECT_THROW(Accelerator().prepare(a, OptimizerSettings{}, OptimizerSettings{}), InputError);
    EXPECT_THROW(Accelerator().prepare(a, OptimizerSettings{}, decay, decay), InputError) << "two schedules";
    Accelerator crossed;
    EXPECT_THROW(crossed.prepare(a, b, of_b, of_a), InputError) << "the other model's";
    EXPECT_THROW(crossed.training(), InputError) << "nothing was prepared";
    Accelerator accelerator;
    auto [model_a, optimizer_a, model_b, optimizer_b] =  // in any order
        accelerator.prepare(a, OptimizerSettings{}, b, OptimizerSettings{});
    EXPECT_THROW(accelerator.save_model(folder.path()), InputError) << "which one?";
    accelerator.save_model(model_b, folder.path());
    EXPECT_TRUE(path_exists(path_join(folder.path(), "model.safetensors")));
    EXPECT_EQ(&accelerator.training(1), &model_b.training());
  });
}

}  // namespace
