/// \file
/// Tensor parallelism against one process: the same Llama on the same rows, forward, backward, AdamW. Prints one JSON
/// line: tokens/s of the median step, CPU seconds of a step of all ranks, the last loss.
///
///   OMP_NUM_THREADS=2 tensor_bench                                    one process, two threads
///   OMP_NUM_THREADS=1 tessera launch --nproc_per_node 2 tensor_bench  two ranks, half of every matrix each
///   [--steps 6 --layers 4 --d 512 --heads 8 --kv 8 --intermediate 1408 --vocab 8192 --T 256 --B 8
///    --sequence_parallel 0 --bf16 0]
///
/// bench/tensor.py runs both and PyTorch's parallelize_module, round by round.

#include <tessera/base/error.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/comm/world.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/tensor_parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

using namespace tessera;

namespace {

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

/// The rows of bench/llama_peer.py: a 31-bit linear congruential generator, restarted per step.
at::Tensor rows(std::int64_t step, std::int64_t b, std::int64_t t, std::int64_t vocabulary) {
  const at::Tensor ids = at::empty({b * t}, at::kLong);
  std::int64_t x = step + 1;
  for (std::int64_t i = 0; i < b * t; ++i) {
    x = (1103515245 * x + 12345) & 0x7FFFFFFF;
    ids.data_ptr<std::int64_t>()[i] = (x >> 8) % vocabulary;
  }
  return ids.view({b, t});
}

void run(comm::World& world, std::map<std::string, std::int64_t>& a) {
  using layout::Axis;
  Value config = models::preset("llama-tiny");
  for (const auto& [option, key] : {std::pair("--layers", "num_hidden_layers"),
                                    {"--d", "hidden_size"},
                                    {"--heads", "num_attention_heads"},
                                    {"--kv", "num_key_value_heads"},
                                    {"--intermediate", "intermediate_size"},
                                    {"--vocab", "vocab_size"},
                                    {"--T", "max_position_embeddings"}})
    config.set(key, Value::of(a[option]));
  config.set("head_dim", Value::of(a["--d"] / a["--heads"]));
  config.set("tie_word_embeddings", Value::of(false));
  const auto net = models::make_model(config, 0);
  const layout::Mesh mesh = layout::parse_mesh(concat("tp=", world.size()), world.size());
  std::optional<TensorParallel> parts;
  if (world.size() > 1)
    parts.emplace(*net, TensorParallelOptions{.group = comm::mesh_group(world, mesh, std::vector{Axis::tp}),
                                              .plan = net->tensor_plan(),
                                              .sequence_parallel = a["--sequence_parallel"] != 0});
  Sharded engine(*net, {.strategy = "ddp", .group = comm::mesh_group(world, mesh, std::vector{Axis::dp_shard})});
  const auto optimizer = optim::make_adamw(engine.slots(), {});
  std::vector<double> wall;
  double cpu = 0, loss = 0;
  constexpr std::int64_t warm_up = 2;
  for (std::int64_t step = 0; step < a["--steps"] + warm_up; ++step) {
    data::Batch batch;
    batch.ids = batch.labels = rows(step, a["--B"], a["--T"], a["--vocab"]);
    world.group().barrier().wait();
    if (step == warm_up) cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    engine.zero_grad();
    at::Tensor value;
    {
      const nn::Autocast precision(a["--bf16"] != 0, at::kCPU);
      value = net->loss(batch, 1 / static_cast<double>(a["--B"] * (a["--T"] - 1)));
    }
    value.backward();
    optimizer->step(3e-4);
    loss = value.item<double>();
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  at::Tensor all = at::full({1}, cpu_seconds() - cpu, at::kDouble);
  world.group().all_reduce(all).wait();
  wall.erase(wall.begin(), wall.begin() + warm_up);
  std::sort(wall.begin(), wall.end());
  if (world.rank() == 0)
    std::printf("{\"tok_s\": %.1f, \"cpu_s\": %.4f, \"loss\": %.7f}\n",
                static_cast<double>(a["--B"] * a["--T"]) / wall[wall.size() / 2],
                all.item<double>() / static_cast<double>(a["--steps"]), loss);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::int64_t> a{{"--steps", 6},    {"--layers", 4},
                                        {"--d", 512},      {"--heads", 8},
                                        {"--kv", 8},       {"--intermediate", 1408},
                                        {"--vocab", 8192}, {"--T", 256},
                                        {"--B", 8},        {"--sequence_parallel", 0},
                                        {"--bf16", 0}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!a.count(argv[i])) return std::fprintf(stderr, "tensor_bench: unknown option %s\n", argv[i]), 2;
    a[argv[i]] = std::stoll(argv[i + 1]);
  }
  nn::keep_memory();
  run(tessera::init(), a);
  tessera::shutdown();
}
