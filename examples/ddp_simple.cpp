// Data-parallel training of your own module in one page of code. Start it with any launcher:
//
//   tessera launch --num_processes 2 build/examples/ddp_simple
//   torchrun --no-python --nproc_per_node 2 build/examples/ddp_simple
//   mpirun -n 2 build/examples/ddp_simple        (or alone: build/examples/ddp_simple)

#include <tessera/tessera.h>
#include "run_main.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <cstdio>
#include <exception>

struct SimpleModelImpl : torch::nn::Module {
  SimpleModelImpl() { register_module("layers", layers); }
  at::Tensor forward(at::Tensor x) { return layers->forward(x); }

  torch::nn::Sequential layers{torch::nn::Linear(784, 256), torch::nn::Functional(at::relu),
                               torch::nn::Linear(256, 10)};
};
TORCH_MODULE(SimpleModel);

// Ten classes of noisy 28 x 28 "images" around ten fixed patterns; every rank draws its own samples.
struct SyntheticDigits {
  at::Tensor patterns = (at::manual_seed(0), at::randn({10, 784}));
  explicit SyntheticDigits(int rank) { at::manual_seed(1 + static_cast<std::uint64_t>(rank)); }
  std::pair<at::Tensor, at::Tensor> batch(std::int64_t size) const {
    const at::Tensor target = at::randint(10, {size}, at::kLong);
    return {patterns.index_select(0, target) + 2 * at::randn({size, 784}), target};
  }
};

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto environment = tessera::launch::read_rank_environment(&arguments);  // removes --local-rank=N
  if (!arguments.empty()) throw tessera::InputError("ddp_simple: unknown argument '" + arguments[0] + "'");
  tessera::comm::World& world = tessera::init(environment, {});

  SimpleModel model;  // an ordinary module
  // copies rank 0's weights to all ranks; averages gradients
  tessera::Ddp ddp(*model);
  torch::optim::SGD optimizer(model->parameters(), /*lr=*/0.01);  // an ordinary optimizer

  const SyntheticDigits data(world.rank());
  for (int epoch = 0; epoch < 5; ++epoch) {
    double sum = 0;
    constexpr int batches = 20;
    for (int i = 0; i < batches; ++i) {
      const auto [image, target] = data.batch(32);
      optimizer.zero_grad();
      const at::Tensor loss = at::cross_entropy_loss(model->forward(image), target);
      loss.backward();  // gradients are reduced during this
      optimizer.step();
      sum += loss.item<double>();
    }
    if (world.rank() == 0) std::printf("epoch %d: loss %.4f (%d ranks)\n", epoch, sum / batches, world.size());
  }
  ddp.check_replicas();  // checks that every rank holds the same bits
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
