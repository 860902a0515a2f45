// ZeRO-1, ZeRO-2 or plain data parallelism around an ordinary module, with gradient accumulation and this library's
// AdamW, which runs fused over the rank's part of all states.
//
//   tessera launch --num_processes 2 build/examples/zero_mlp
//   tessera launch --num_processes 2 build/examples/zero_mlp --strategy=ddp

#include <tessera/parallel/fully_shard.h>
#include <tessera/tessera.h>
#include "run_main.h"

#include <ATen/ATen.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/linear.h>

#include <cstdio>
#include <exception>
#include <optional>

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto environment = tessera::launch::read_rank_environment(&arguments);
  std::string strategy = "zero1";
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--strategy="))
      throw tessera::InputError("zero_mlp: unknown argument '" + argument + "'");
    strategy = argument.substr(11);
  }
  tessera::comm::World& world = tessera::init(environment, {});

  torch::nn::Sequential model(torch::nn::Linear(32, 128), torch::nn::Functional(at::relu), torch::nn::Linear(128, 8));
  tessera::Sharded zero(*model, {.strategy = strategy});  // rank 0's values everywhere
  const auto optimizer =
      tessera::optim::make_adamw(zero.slots([](tessera::optim::Slot& slot) { slot.weight_decay = 0.01; }), {});

  // Rows of noise around eight patterns; every rank draws its own.
  at::manual_seed(0);
  const at::Tensor patterns = at::randn({8, 32});
  at::manual_seed(1 + static_cast<std::uint64_t>(world.rank()));
  constexpr int batches = 15, micro_batches = 2;
  for (int epoch = 0; epoch < 4; ++epoch) {
    double sum = 0;
    for (int i = 0; i < batches; ++i) {
      zero.zero_grad();
      for (int micro = 0; micro < micro_batches; ++micro) {
        // Only the backward of the last micro-batch communicates (with ZeRO-1 and DDP; other strategies accumulate in
        // their shards).
        std::optional<tessera::Sharded::NoSync> pause;
        if (micro + 1 < micro_batches) pause.emplace(zero);
        const at::Tensor target = at::randint(8, {16}, at::kLong);
        const at::Tensor row = patterns.index_select(0, target) + 0.5 * at::randn({16, 32});
        const at::Tensor loss = at::cross_entropy_loss(model->forward(row), target) / micro_batches;
        loss.backward();
        sum += loss.item<double>();
      }
      optimizer->step(/*learning_rate=*/2e-3);
    }
    if (world.rank() == 0) std::printf("epoch %d: loss %.4f (%d ranks)\n", epoch, sum / batches, world.size());
  }
  if (world.rank() == 0) {
    std::int64_t states = 0;
    for (const auto& [name, tensor] : optimizer->state()) states += static_cast<std::int64_t>(tensor.nbytes());
    std::printf("bytes on this rank: parameters %lld, gradients %lld, optimizer %lld\n",
                static_cast<long long>(zero.memory().shards), static_cast<long long>(zero.memory().gradients),
                static_cast<long long>(states));
  }
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
