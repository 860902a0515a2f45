/// \file
/// The benefit of DataParallel on the CPU: a batch through one replica with one thread, one replica with N intra-op
/// threads, and N replicas with one thread each; without gradients (parallel inference), and a training step (forward
/// and backward). Prints the wall time relative to one replica with one thread: the variants alternate, and the minimum
/// over rounds is used.
///
///   data_parallel_bench [--replicas 2] [--rounds 9] [--layers 4 --d 256 --heads 4 --T 128 --B 16 --vocab 8192]

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/parallel/replicas/data_parallel.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <string>
#include <vector>

using namespace tessera;

int main(int argc, char** argv) {
  std::map<std::string, std::string> a{{"--replicas", "2"}, {"--rounds", "9"}, {"--layers", "4"}, {"--d", "256"},
                                       {"--heads", "4"},    {"--T", "128"},    {"--B", "16"},     {"--vocab", "8192"}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!a.count(argv[i])) return std::fprintf(stderr, "data_parallel_bench: unknown option %s\n", argv[i]), 2;
    a[argv[i]] = argv[i + 1];
  }
  Value config = models::preset("gpt2-tiny");
  config.set("n_layer", Value::of(std::stol(a["--layers"])));
  config.set("n_embd", Value::of(std::stol(a["--d"])));
  config.set("n_head", Value::of(std::stol(a["--heads"])));
  config.set("n_positions", Value::of(std::stol(a["--T"])));
  config.set("vocab_size", Value::of(std::stol(a["--vocab"])));
  const std::shared_ptr<models::CausalLm> model = models::make_model(config, 0);
  const std::int64_t b = std::stol(a["--B"]), t = std::stol(a["--T"]);
  at::manual_seed(1);
  const at::Tensor ids = at::randint(0, std::stol(a["--vocab"]), {b, t}, at::kLong);
  nn::keep_memory();

  const int n = std::stoi(a["--replicas"]);
  at::set_num_threads(1);
  DataParallel alone(model, {.replicas = 1}), teams(model, {.replicas = n, .threads_per_replica = 1});
  const auto loss = [scale = 1.0 / static_cast<double>(b * (t - 1))](models::CausalLm& m, const at::Tensor& part) {
    return m.loss(part, part, scale);
  };
  struct Way {
    std::string name;
    DataParallel<models::CausalLm>* dp;
    int threads;
    double inference = 1e9, step = 1e9;
  };
  std::vector<Way> ways{{"1 replica, 1 thread", &alone, 1},
                        {concat("1 replica, ", n, " threads"), &alone, n},
                        {concat(n, " replicas, 1 thread each"), &teams, 1}};
  const auto timed = [](double& best, const auto& work) {
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min(best, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  };
  const auto round = [&](bool count) {
    for (Way& way : ways) {
      at::set_num_threads(way.threads);
      double inference = 1e9, step = 1e9;
      {
        const at::NoGradGuard no_grad;
        timed(inference, [&] { way.dp->call(loss, ids); });
      }
      timed(step, [&] { way.dp->call(loss, ids).sum().backward(); });
      for (const at::Tensor& p : model->parameters()) p.mutable_grad().reset();
      if (!count) continue;
      way.inference = std::min(way.inference, inference);
      way.step = std::min(way.step, step);
    }
  };
  round(false);
  for (int i = 0; i < std::stoi(a["--rounds"]); ++i) round(true);
  std::printf("%-28s %22s %24s\n", "", "inference", "forward and backward");
  for (const Way& way : ways)
    std::printf("%-28s %10.1f ms  %5.2fx %12.1f ms  %5.2fx\n", way.name.c_str(), 1e3 * way.inference,
                ways[0].inference / way.inference, 1e3 * way.step, ways[0].step / way.step);
}
