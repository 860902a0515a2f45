// A third-party transformer (user_module.h, which is unaware of this library), trained with its parameters, gradients
// and optimizer states divided over ranks. This takes three lines; the loop is an ordinary one.
//
//   tessera launch --num_processes 4 build/examples/fsdp_transformer
//   tessera launch --num_processes 4 build/examples/fsdp_transformer --strategy=hybrid_shard
//   build/examples/fsdp_transformer                                 (alone: ordinary training)

#include "run_main.h"
#include "user_module.h"

#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/tessera.h>

#include <torch/optim/adamw.h>

#include <cstdio>
#include <exception>

/// Sequences in which every token follows from the previous one: ids int64 [rows, 17].
at::Tensor sequences(std::int64_t rows, std::int64_t vocabulary) {
  at::Tensor token = at::randint(vocabulary, {rows}, at::kLong);
  std::vector<at::Tensor> ids;
  for (int i = 0; i < 17; ++i, token = (token * 5 + 3).remainder(vocabulary)) ids.push_back(token);
  return at::stack(ids, 1);
}

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto environment = tessera::launch::read_rank_environment(&arguments);
  std::string strategy = "full_shard";
  for (const std::string& argument : arguments) {
    if (!argument.starts_with("--strategy="))
      throw tessera::InputError("fsdp_transformer: unknown argument '" + argument + "'");
    strategy = argument.substr(11);
  }

  tessera::comm::World& world = tessera::init(environment, {});
  const MyConfig config;
  const auto net = tessera::deferred<MyTransformerImpl>(config);  // allocates no memory yet; std::make_shared works as
                                                                  // well
  // One block is gathered at a time; a strategy without parameter sharding reduces one block's gradients at a time.
  tessera::Sharded fsdp(*net, {.strategy = strategy, .wrap = tessera::by_class({"MyBlock"})});

  torch::optim::AdamW optimizer(fsdp.parameters(), 3e-3);         // this rank's parts
  at::manual_seed(1 + static_cast<std::uint64_t>(world.rank()));  // every rank draws its own data
  for (int epoch = 0; epoch < 4; ++epoch) {
    double sum = 0;
    constexpr int batches = 12;
    for (int i = 0; i < batches; ++i) {
      const at::Tensor ids = sequences(8, config.vocabulary);
      fsdp.zero_grad();
      const at::Tensor logits = net->forward(ids.narrow(1, 0, 16));
      const at::Tensor loss =
          at::cross_entropy_loss(logits.reshape({-1, config.vocabulary}), ids.narrow(1, 1, 16).reshape({-1}));
      loss.backward();
      fsdp.clip_grad_norm(1.0);
      optimizer.step();
      sum += loss.item<double>();
    }
    if (world.rank() == 0) std::printf("epoch %d: loss %.4f (%d ranks)\n", epoch, sum / batches, world.size());
  }

  if (world.rank() == 0) {
    for (const tessera::ShardingUnit& unit : fsdp.units())
      std::printf("unit %-10s %7lld parameters, %7lld bytes stay, %7lld when whole\n", unit.name.c_str(),
                  static_cast<long long>(unit.numel), static_cast<long long>(unit.shard_bytes),
                  static_cast<long long>(unit.present_bytes));
    const tessera::ShardingMemory memory = fsdp.memory();
    std::printf("bytes on this rank: parameters %lld, gradients %lld, whole parameters at most %lld\n",
                static_cast<long long>(memory.shards), static_cast<long long>(memory.gradients),
                static_cast<long long>(memory.whole_peak));
  }
  fsdp.restore();  // turns the module back into an ordinary, complete one on every rank, for evaluation and saving
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
