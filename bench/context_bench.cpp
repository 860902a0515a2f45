/// \file Context parallelism compared with one process: forward, backward and optimizer of the same Llama on the same
/// rows. Prints the median seconds and the CPU seconds (of this process) of a step.
///
///   OMP_NUM_THREADS=2 context_bench                                    one process, two threads
///   OMP_NUM_THREADS=1 tessera launch --nproc_per_node 2 context_bench  two ranks, half of every row each
///   [--steps 8 --layers 2 --d 512 --heads 8 --kv 8 --T 1024 --B 2 --vocab 8192 --intermediate 1344 --method p2p]
///   --attention 1   attention alone: no model

#include <bench/small_llama.h>

#include <tessera/base/error.h>
#include <tessera/comm/world.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/nn/attention.h>
#include <tessera/parallel/context/attention.h>
#include <tessera/parallel/context/batch.h>
#include <tessera/parallel/fully_shard.h>

#include <ATen/Parallel.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>

using namespace tessera;
using small_llama::cpu_seconds, small_llama::median;

namespace {

/// Runs `step`, with two warm-up calls first, and prints the time of one call.
void measure(const comm::World& world, const std::string& what, std::int64_t steps, const std::function<void()>& step) {
  std::vector<double> wall, cpu;
  for (std::int64_t i = 0; i < steps + 2; ++i) {
    world.group().barrier().wait();
    const double start = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    step();
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    cpu.push_back(cpu_seconds() - start);
  }
  wall.erase(wall.begin(), wall.begin() + 2);
  cpu.erase(cpu.begin(), cpu.begin() + 2);
  if (world.rank() == 0)
    std::printf("%s, %d ranks of %d threads: %.1f ms a step (least %.1f), %.1f ms of CPU a rank\n", what.c_str(),
                world.size(), at::get_num_threads(), 1e3 * median(wall),
                1e3 * *std::min_element(wall.begin(), wall.end()), 1e3 * median(cpu));
}

void attention_alone(comm::World& world, small_llama::Numbers& a, const ContextGroups& groups) {
  const std::int64_t d = a["--d"] / a["--heads"], t = a["--T"] / world.size();
  const auto draw = [&](std::int64_t heads) { return at::randn({a["--B"], t, heads, d}).requires_grad_(); };
  const at::Tensor q = draw(a["--heads"]), k = draw(a["--kv"]), v = draw(a["--kv"]);
  const at::Tensor dy = at::randn({a["--B"], t, a["--d"]});
  measure(world, concat("attention, ", layout::context_method_name(groups.method)), a["--steps"], [&] {
    const at::Tensor out = world.size() > 1
                               ? context_attention(q, k, v, groups)
                               : nn::attention(q, k, v, {}, {.scale = 1 / std::sqrt(static_cast<double>(d))});
    out.backward(dy);
  });
}

void model(comm::World& world, small_llama::Numbers& a, const ContextGroups& groups) {
  const auto net = models::make_model(small_llama::config(a, /*tied=*/true), 0);
  net->set_attention(context_attention_function(groups));
  Sharded sharded(*net, {.strategy = "zero1", .reduction = comm::Reduction::sum});
  const auto optimizer = optim::make_adamw(sharded.slots(), {});
  data::Batch batch;
  batch.ids = batch.labels = at::randint(0, a["--vocab"], {a["--B"], a["--T"]}, at::kLong);
  const data::Batch mine = cut_batch(batch, groups, net->objective());
  measure(world, concat("training, ", layout::context_method_name(groups.method)), a["--steps"], [&] {
    sharded.zero_grad();
    net->loss(mine, 1 / static_cast<double>(batch.ids.numel())).backward();
    optimizer->step(1e-4);
  });
}

}  // namespace

int main(int argc, char** argv) {
  small_llama::Numbers a{
      {"--steps", 8}, {"--layers", 2}, {"--d", 512},      {"--heads", 8},           {"--kv", 8},
      {"--T", 1024},  {"--B", 2},      {"--vocab", 8192}, {"--intermediate", 1344}, {"--attention", 0}};
  small_llama::Words words{{"--method", "p2p"}};
  if (!small_llama::read_options(argc, argv, a, &words)) return 2;
  const std::string& method = words["--method"];
  const auto chosen = parse_word<ContextMethod>(method);
  if (!chosen) return std::fprintf(stderr, "context_bench: unknown method %s\n", method.c_str()), 2;
  nn::keep_memory();
  comm::World& world = tessera::init();
  at::manual_seed(1);
  const ContextGroups groups = context_groups(world, layout::parse_mesh(concat("cp=", world.size())), *chosen);
  (a["--attention"] != 0 ? attention_alone : model)(world, a, groups);
  tessera::shutdown();
}
