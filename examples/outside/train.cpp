// Your own module, trained by any number of processes; parameters, gradients and optimizer states are divided over
// them. The loss after 60 steps is the same for any number of processes, because all of them together use the same 16
// rows per step.

#include <tessera/tessera.h>

#include <torch/nn/module.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <exception>

struct Net : torch::nn::Module {
  torch::nn::Linear in = register_module("in", torch::nn::Linear(8, 64));
  torch::nn::Linear out = register_module("out", torch::nn::Linear(64, 1));
  at::Tensor forward(const at::Tensor& x) { return out->forward(at::tanh(in->forward(x))); }
};

int main() try {
  tessera::comm::World& world = tessera::init();
  at::manual_seed(0);
  Net net;
  tessera::Sharded sharded(net, {.strategy = "full_shard"});
  torch::optim::SGD optimizer(sharded.parameters(), 0.1);
  at::manual_seed(1);
  double last = 0;
  for (int step = 0; step < 60; ++step) {
    const at::Tensor all = at::randn({16, 8});  // every process generates all rows and takes its own
    const at::Tensor x = all.chunk(world.size())[world.rank()];
    sharded.zero_grad();
    const at::Tensor loss = (net.forward(x) - x.sum(1, true).sin()).square().mean();
    loss.backward();
    optimizer.step();
    at::Tensor mean = loss.detach().clone();
    world.group().all_reduce(mean, tessera::comm::Reduction::mean).wait();
    last = mean.item<double>();
  }
  if (world.rank() == 0) std::printf("loss %.5f with %d processes\n", last, static_cast<int>(world.size()));
  tessera::shutdown();
  return 0;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
