/// \file
/// A small Mixtral in one process: forward, backward, AdamW. Prints one JSON line: tokens/s of the median step, CPU
/// seconds of a step, the last loss.
///
///   mixtral_bench [--steps 6 --layers 4 --d 256 --heads 8 --kv 4 --intermediate 512 --vocab 8192 --T 256 --B 8
///                  --experts 8 --top_k 2]          (OMP_NUM_THREADS: threads)
///
/// bench/mixtral_peer.py is transformers' Mixtral on the same rows.

#include <bench/small_llama.h>

#include <tessera/base/error.h>
#include <tessera/comm/world.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/parallel/fully_shard.h>

using namespace tessera;

namespace {

Value config(const small_llama::Numbers& a) {
  Value config = small_llama::config(a);
  config.set("model_type", Value::of("mixtral"));
  config.set("architectures", Value::make_array({Value::of("MixtralForCausalLM")}));
  config.set("num_local_experts", Value::of(a.at("--experts")));
  config.set("num_experts_per_tok", Value::of(a.at("--top_k")));
  return config;
}

void run(comm::World& world, const small_llama::Numbers& a) {
  const auto net = models::make_model(config(a), 0);
  Sharded engine(*net, {.strategy = "ddp", .group = world.group()});
  const auto optimizer = optim::make_adamw(engine.slots(), {});
  small_llama::measure_training(world, a, [&](const at::Tensor& ids) {
    engine.zero_grad();
    const at::Tensor loss = net->loss(ids, ids, 1 / static_cast<double>(a.at("--B") * (a.at("--T") - 1)));
    loss.backward();
    optimizer->step(3e-4);
    return loss.item<double>();
  });
}

}  // namespace

int main(int argc, char** argv) {
  small_llama::Numbers a{{"--steps", 6}, {"--layers", 4},         {"--d", 256},      {"--heads", 8}, {"--kv", 4},
                         {"--T", 256},   {"--intermediate", 512}, {"--vocab", 8192}, {"--B", 8},     {"--experts", 8},
                         {"--top_k", 2}};
  if (!small_llama::read_options(argc, argv, a)) return 2;
  nn::keep_memory();
  run(tessera::init(), a);
  tessera::shutdown();
}
