// A third-party transformer (user_module.h, which is unaware of this library) with its matrices cut over ranks: a plan
// of six lines defines the cuts, and the loop is an ordinary one. With more ranks than --tp, the remaining ranks divide
// the data and the parts.
//
//   tessera launch --num_processes 2 build/examples/tensor_parallel
//   tessera launch --num_processes 4 build/examples/tensor_parallel --tp=2 --strategy=full_shard
//   build/examples/tensor_parallel --tp=1                           (alone: the same losses)

#include "run_main.h"
#include "user_module.h"

#include <tessera/comm/mesh_groups.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tessera/tessera.h>

#include <torch/optim/adamw.h>

#include <cstdio>

/// Sequences in which every token follows from the previous one: ids int64 [rows, 17].
static at::Tensor sequences(std::int64_t rows, std::int64_t vocabulary) {
  at::Tensor token = at::randint(vocabulary, {rows}, at::kLong);
  std::vector<at::Tensor> ids;
  for (int i = 0; i < 17; ++i, token = (token * 5 + 3).remainder(vocabulary)) ids.push_back(token);
  return at::stack(ids, 1);
}

static void example(int argc, char** argv) {
  std::vector<std::string> arguments(argv + 1, argv + argc);
  const auto environment = tessera::launch::read_rank_environment(&arguments);
  std::string strategy = "ddp", ranks = "2";
  for (const std::string& argument : arguments) {
    if (argument.starts_with("--strategy="))
      strategy = argument.substr(11);
    else if (argument.starts_with("--tp="))
      ranks = argument.substr(5);
    else
      throw tessera::InputError("tensor_parallel: unknown argument '" + argument + "'");
  }

  using tessera::layout::Axis;
  using enum tessera::TensorStyle;
  tessera::comm::World& world = tessera::init(environment, {});
  const auto mesh = tessera::layout::parse_mesh("dp=-1,tp=" + ranks, world.size());
  const auto data = tessera::comm::mesh_group(world, mesh, std::vector{Axis::dp_shard});

  at::manual_seed(1);  // all ranks create the same values, and each keeps its part of them
  const MyConfig config;
  MyTransformer net(config);
  const tessera::TensorParallel parts(
      *net, {.group = tessera::comm::mesh_group(world, mesh, std::vector{Axis::tp}),
             .plan = {{"attention.in_proj_weight", colwise_gather_output, 3},  // q, k and v are stored in one matrix
                      {"attention.out_proj", rowwise_split_input},
                      {"up", colwise},
                      {"down", rowwise},
                      {"token", embedding_rowwise},
                      {"head", colwise_gather_output}}});
  // Over the other axis, the gradients of the parts are divided or, with full_shard, the parts themselves.
  tessera::Sharded engine(*net, {.strategy = strategy, .group = data, .wrap = tessera::by_class({"MyBlock"})});

  torch::optim::AdamW optimizer(engine.parameters(), 3e-3);
  at::manual_seed(1 + static_cast<std::uint64_t>(data.rank()));  // ranks of one tp group have the same data
  for (int epoch = 0; epoch < 4; ++epoch) {
    double sum = 0;
    constexpr int batches = 12;
    for (int i = 0; i < batches; ++i) {
      const at::Tensor ids = sequences(8, config.vocabulary);
      engine.zero_grad();
      const at::Tensor logits = net->forward(ids.narrow(1, 0, 16));
      const at::Tensor loss =
          at::cross_entropy_loss(logits.reshape({-1, config.vocabulary}), ids.narrow(1, 1, 16).reshape({-1}));
      loss.backward();
      engine.clip_grad_norm(1.0);  // over all parts; each is counted once
      optimizer.step();
      sum += loss.item<double>();
    }
    if (world.rank() == 0) std::printf("epoch %d: loss %.4f (%d ranks)\n", epoch, sum / batches, world.size());
  }
  if (world.rank() == 0)
    std::printf("bytes on this rank: parameters %lld\n", static_cast<long long>(engine.memory().shards));
  tessera::shutdown();
}

int main(int argc, char** argv) { return run_main(example, argc, argv); }
