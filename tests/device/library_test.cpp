// The library on the double of the device, in ranks of this program.
#include <ATen/ATen.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>

#include <gtest/gtest.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/fully_shard.h>
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

}  // namespace
}  // namespace tessera::testing
