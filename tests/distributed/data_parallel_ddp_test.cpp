// DataParallel inside Ddp: several processes, each with a team of threads. Ddp sees a single backward pass.
#include "harness.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <tessera/parallel/ddp.h>
#include <tessera/parallel/replicas/data_parallel.h>

namespace {

using namespace tessera;

struct MlpImpl : torch::nn::Module {
  MlpImpl()
      : up(register_module("up", torch::nn::Linear(6, 32))), down(register_module("down", torch::nn::Linear(32, 3))) {}
  at::Tensor forward(const at::Tensor& x) { return down(at::gelu(up(x))); }
  torch::nn::Linear up, down;
};
TORCH_MODULE(Mlp);

std::vector<at::Tensor> gradients(const Mlp& net) {
  std::vector<at::Tensor> result;
  for (const at::Tensor& p : net->parameters()) result.push_back(p.grad().clone());
  return result;
}

TEST(DataParallelDdp, replicas_in_ranks_equal_one_process_on_the_whole_batch) {
  tessera::testing::run_ranks(2, [](comm::World& world) {
    at::manual_seed(1);
    Mlp net;
    net->to(at::kDouble);
    const at::Tensor x = at::randn({12, 6}, at::kDouble);
    net->forward(x).pow(2).mean().backward();
    const auto expected = gradients(net);
    net->zero_grad();

    Ddp ddp(*net, {.bucket_mb = 0.001});
    DataParallel dp(net, {.replicas = 3, .threads_per_replica = 1});
    for (int step = 0; step < 3; ++step) {
      ddp.zero_grad();
      dp(x.narrow(0, 6 * world.rank(), 6)).pow(2).mean().backward();
      const auto found = gradients(net);
      for (std::size_t i = 0; i < found.size(); ++i)
        EXPECT_LT((found[i] - expected[i]).abs().max().item<double>(), 1e-13) << "parameter " << i << ", step " << step;
    }
    ddp.check_replicas();
  });
}

}  // namespace
