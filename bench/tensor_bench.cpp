/// \file Tensor parallelism compared with one process: forward, backward and AdamW of the same Llama on the same rows.
/// Prints one JSON line: tokens/s of the median step, CPU seconds of a step of all ranks, the last loss.
///
///   OMP_NUM_THREADS=2 tensor_bench                                    one process, two threads
///   OMP_NUM_THREADS=1 tessera launch --nproc_per_node 2 tensor_bench  two ranks, half of every matrix each
///   [--steps 6 --layers 4 --d 512 --heads 8 --kv 8 --intermediate 1408 --vocab 8192 --T 256 --B 8
///    --sequence_parallel 0 --bf16 0]
///
/// bench/tensor.py runs both and PyTorch's parallelize_module, round by round.

#include <bench/small_llama.h>

#include <tessera/base/error.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/comm/world.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/tensor_parallel.h>

#include <optional>
#include <vector>

using namespace tessera;

namespace {

void run(comm::World& world, const small_llama::Numbers& a) {
  using layout::Axis;
  const auto net = models::make_model(small_llama::config(a), 0);
  const layout::Mesh mesh = layout::parse_mesh(concat("tp=", world.size()), world.size());
  std::optional<TensorParallel> parts;
  if (world.size() > 1)
    parts.emplace(*net, TensorParallelOptions{.group = comm::mesh_group(world, mesh, std::vector{Axis::tp}),
                                              .plan = net->tensor_plan(),
                                              .sequence_parallel = a.at("--sequence_parallel") != 0});
  Sharded engine(*net, {.strategy = "ddp", .group = comm::mesh_group(world, mesh, std::vector{Axis::dp_shard})});
  const auto optimizer = optim::make_adamw(engine.slots(), {});
  small_llama::measure_training(world, a, [&](const at::Tensor& ids) {
    data::Batch batch;
    batch.ids = batch.labels = ids;
    engine.zero_grad();
    at::Tensor loss;
    {
      const nn::Autocast precision(a.at("--bf16") != 0, at::kCPU);
      loss = net->loss(batch, 1 / static_cast<double>(a.at("--B") * (a.at("--T") - 1)));
    }
    loss.backward();
    optimizer->step(3e-4);
    return loss.item<double>();
  });
}

}  // namespace

int main(int argc, char** argv) {
  small_llama::Numbers a{{"--steps", 6},    {"--layers", 4},
                         {"--d", 512},      {"--heads", 8},
                         {"--kv", 8},       {"--intermediate", 1408},
                         {"--vocab", 8192}, {"--T", 256},
                         {"--B", 8},        {"--sequence_parallel", 0},
                         {"--bf16", 0}};
  if (!small_llama::read_options(argc, argv, a)) return 2;
  nn::keep_memory();
  run(tessera::init(), a);
  tessera::shutdown();
}
