// The library on the simulated device, on ranks forked from this program.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>
#include <tessera/data/to_device.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/load.h>
#include <tessera/models/overrides.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>
#include <tessera/parallel/replicas/data_parallel.h>
#include <tessera/parallel/replicas/rows_of_batch.h>
#include <tests/device/on_the_double.h>
#include <tests/distributed/harness.h>
#include <tests/double/findings.h>

namespace tessera::testing {
namespace {

struct NetImpl : torch::nn::Module {
  torch::nn::Linear first{nullptr}, second{nullptr};
  at::Tensor scale;
  NetImpl() {
    first = register_module("first", torch::nn::Linear(16, 32));
    second = register_module("second", torch::nn::Linear(32, 4));
    scale = register_buffer("scale", at::full({4}, 2.0));
  }
  at::Tensor forward(const at::Tensor& x) { return second(first(x).relu()) * scale; }
};

TEST(DeviceLibrary, DeferredModulesAreConstructedOnTheDevice) {
  for (const int ranks : {1, 2}) {
    for (const bool loaded : {false, true}) {
      run_ranks(
          ranks,
          [&](comm::World& world) {
            for (const char* strategy : {"full_shard", "zero1", "ddp"}) {
              at::manual_seed(9);
              NetImpl eager;
              at::manual_seed(9);
              const auto net = deferred<NetImpl>();
              ShardingOptions options;
              options.strategy = strategy;
              if (loaded) {
                options.load = [&](const std::string& name, at::IntArrayRef, std::int64_t begin, at::Tensor piece) {
                  const at::Tensor whole = eager.named_parameters()[name].detach().view({-1});
                  piece.copy_(whole.narrow(0, begin, piece.numel()));
                  return true;
                };
              }
              Sharded sharded(*net, options);
              const at::Tensor x = at::linspace(-1, 1, 16).view({1, 16});
              const at::Tensor y = net->forward(x.to(world.device()));
              EXPECT_TRUE(y.is_cuda());
              EXPECT_TRUE(at::allclose(y.cpu(), eager.forward(x), 1e-5, 1e-6)) << strategy;
              y.sum().backward();
              EXPECT_GT(sharded.grad_norm(), 0);
            }
            for (const auto kind : {cuda_double::Kind::race, cuda_double::Kind::mixed_devices,
                                    cuda_double::Kind::uninitialized, cuda_double::Kind::wrong_device}) {
              EXPECT_EQ(cuda_double::findings(kind), 0U);
            }
            world.group().barrier().wait();
          },
          on_device());
    }
  }
}

/// One process, two devices: forward, gradients, a step, and inference with the new weights equal those of one CPU.
TEST(DeviceLibrary, DataParallelOverTwoDevices) {
  on_the_double([] {
    at::manual_seed(9);
    const auto cpu = std::make_shared<NetImpl>(), net = std::make_shared<NetImpl>();
    {
      const at::NoGradGuard no_grad;
      for (const auto& p : cpu->named_parameters()) net->named_parameters()[p.key()].copy_(p.value());
    }
    net->to(c10::Device(c10::kCUDA, 0));
    parallel::DataParallel dp(net, {.devices = {c10::Device(c10::kCUDA, 0), c10::Device(c10::kCUDA, 1)},
                                    .make = [] { return std::make_shared<NetImpl>(); }});
    EXPECT_EQ(dp.replicas(), 2);
    const at::Tensor x = at::linspace(-1, 1, 5 * 16).view({5, 16});
    const auto step = [&](NetImpl& owner, const at::Tensor& y) {
      y.square().sum().backward();
      const at::NoGradGuard no_grad;
      for (at::Tensor& p : owner.parameters()) {
        p.sub_(p.grad(), 0.01);
        p.mutable_grad().reset();
      }
    };
    for (int i = 0; i < 3; ++i) {
      const at::Tensor expected = cpu->forward(x), y = dp(x.to(c10::Device(c10::kCUDA, 0)));
      EXPECT_EQ(y.device(), c10::Device(c10::kCUDA, 0));
      EXPECT_TRUE(at::allclose(y.detach().cpu(), expected, 1e-5, 1e-6)) << "step " << i;
      step(*cpu, expected);
      step(*net, y);
    }
    const at::NoGradGuard no_grad;
    EXPECT_TRUE(at::allclose(dp(x.to(c10::Device(c10::kCUDA, 0))).cpu(), cpu->forward(x), 1e-5, 1e-6));
  });
}

/// A language model's loss, with its blocks recomputed in backward.
TEST(DeviceLibrary, DataParallelOfALanguageModelWithCheckpointedBlocks) {
  on_the_double([] {
    const auto config = models::with_overrides(models::preset("llama-tiny"),
                                               "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,"
                                               "num_key_value_heads=2,intermediate_size=48,vocab_size=61");
    const auto make = [&] { return models::make_language_model(config, 1); };
    const auto cpu = make(), net = make();
    net->to(c10::Device(c10::kCUDA, 0));
    models::checkpoint_blocks(*net, {});
    parallel::DataParallel dp(net, {.devices = {c10::Device(c10::kCUDA, 0), c10::Device(c10::kCUDA, 1)}, .make = [&] {
                                      const auto replica = make();
                                      models::checkpoint_blocks(*replica, {});
                                      return replica;
                                    }});
    data::Batch batch{.ids = at::arange(3 * 8).view({3, 8}), .labels = at::arange(3 * 8).view({3, 8}).clone()};
    batch.document_starts = {0, 5, 8, 16, 18};
    const at::Tensor loss = cpu->loss(batch, 0.5);
    loss.backward();
    for (const char* place : {"cpu", "cuda:0"}) {
      SCOPED_TRACE(place);
      const at::Tensor losses =
          dp.call([](models::LanguageModel& m, const data::Batch& rows) { return m.loss(rows, 0.5); },
                  data::to_device(batch, c10::Device(place)));
      EXPECT_EQ(losses.sizes(), (std::vector<std::int64_t>{2}));
      losses.sum().backward();
      EXPECT_NEAR(losses.sum().item<double>(), loss.item<double>(), 1e-4);
      for (const auto& p : cpu->named_parameters()) {
        at::Tensor& found = net->named_parameters()[p.key()].mutable_grad();
        EXPECT_TRUE(found.defined() && at::allclose(found.cpu(), p.value().grad(), 1e-4, 1e-5)) << p.key();
        found.reset();
      }
    }
  });
}

/// A module whose noise is drawn on the CPU.
struct NoisyNetImpl : torch::nn::Module {
  torch::nn::Linear map{nullptr};
  bool checkpoints = false;
  NoisyNetImpl() { map = register_module("map", torch::nn::Linear(16, 16)); }
  at::Tensor once(const at::Tensor& x) { return map(x) * at::rand(x.sizes()).to(x.device()); }
  at::Tensor forward(const at::Tensor& x) {
    const auto part = [this](const at::Tensor& h) { return once(h); };
    return checkpoints ? checkpointed(part, checkpointed(part, x)) : once(once(x));
  }
};

/// Each replica recomputes with the numbers of its own stream, although a thread of the engine runs it.
TEST(DeviceLibrary, DataParallelComputesAgainWithTheSameRandomNumbers) {
  on_the_double([] {
    at::manual_seed(9);
    const auto net = std::make_shared<NoisyNetImpl>();
    net->to(c10::Device(c10::kCUDA, 0));
    const at::Tensor x = at::linspace(-1, 1, 6 * 16).view({6, 16}).to(c10::Device(c10::kCUDA, 0));
    const auto gradient = [&](bool checkpoints) {
      net->checkpoints = checkpoints;
      const auto made = [checkpoints] {
        const auto replica = std::make_shared<NoisyNetImpl>();
        replica->checkpoints = checkpoints;
        return replica;
      };
      parallel::DataParallel dp(net,
                                {.devices = {c10::Device(c10::kCUDA, 0), c10::Device(c10::kCUDA, 1)}, .make = made});
      at::manual_seed(7);
      dp(x).square().sum().backward();
      return std::exchange(net->map->weight.mutable_grad(), at::Tensor()).cpu();
    };
    const at::Tensor expected = gradient(false);
    EXPECT_TRUE(at::allclose(gradient(true), expected, 1e-5, 1e-6));
  });
}

}  // namespace
}  // namespace tessera::testing
