/// \file
/// The cost of the sharding engine for one rank: the same GPT-2 trained by a plain loop, through Sharded (which leaves
/// a single rank's parameters unchanged), and with forced resharding (every unit is gathered, dropped and reduced by
/// the rank alone). Steps are interleaved; the ratios are medians over pairs.
///
///   sharding_bench [--steps 20 --layers 12 --d 256 --heads 4 --T 128 --B 4 --vocab 8192]

#include <ATen/Parallel.h>
#include <tessera/base/text.h>
#include <tessera/comm/world.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/optim/optimizer.h>
#include <tessera/parallel/fully_shard.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>

using namespace tessera;

namespace {

struct Run {
  std::shared_ptr<models::CausalLm> model;
  std::optional<Sharded> sharded;
  std::unique_ptr<optim::Optimizer> optimizer;
  std::vector<double> seconds = {};

  Run(const Value& config, std::optional<ShardingOptions> options) : model(models::make_model(config, 0)) {
    model->train();
    std::vector<optim::Slot> slots;
    if (options) {
      sharded.emplace(*model, *options);
      slots = sharded->slots();
    } else {
      for (auto& p : model->named_parameters()) slots.push_back({.name = p.key(), .parameter = p.value()});
    }
    optimizer = optim::make_adamw(slots, {});
  }

  double step(const at::Tensor& ids) {
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor loss = model->loss(ids, ids, 1.0 / static_cast<double>(ids.numel()));
    loss.backward();
    optimizer->step(3e-4);
    if (sharded)
      sharded->zero_grad();
    else
      for (auto& p : model->parameters()) p.mutable_grad().reset();
    seconds.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    return loss.item<double>();
  }
};

double median_ratio(const Run& a, const Run& b) {
  std::vector<double> ratios;
  for (std::size_t i = 2; i < a.seconds.size(); ++i) ratios.push_back(a.seconds[i] / b.seconds[i]);
  std::nth_element(ratios.begin(), ratios.begin() + static_cast<std::ptrdiff_t>(ratios.size() / 2), ratios.end());
  return ratios[ratios.size() / 2];
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::int64_t> a{{"--steps", 20}, {"--layers", 12}, {"--d", 256},     {"--heads", 4},
                                        {"--T", 128},    {"--B", 4},       {"--vocab", 8192}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!a.count(argv[i])) return std::fprintf(stderr, "sharding_bench: unknown option %s\n", argv[i]), 2;
    a[argv[i]] = std::stoll(argv[i + 1]);
  }
  nn::keep_memory();
  at::set_num_threads(1);
  tessera::init();
  Value config = models::preset("gpt2-tiny");
  config.set("n_layer", Value::of(a["--layers"]));
  config.set("n_embd", Value::of(a["--d"]));
  config.set("n_head", Value::of(a["--heads"]));
  config.set("n_positions", Value::of(a["--T"]));
  config.set("vocab_size", Value::of(a["--vocab"]));
  const layout::WrapPolicy blocks{.kind = layout::WrapPolicy::Kind::by_regex, .pattern = R"((transformer\.)?h\.\d+)"};
  Run plain(config, {}), alone(config, ShardingOptions{.wrap = blocks}),
      forced(config, ShardingOptions{.wrap = blocks, .reshard_alone = true});
  const at::Tensor ids = at::randint(a["--vocab"], {a["--B"], a["--T"]}, at::kLong);
  double difference = 0;
  for (std::int64_t s = 0; s < a["--steps"]; ++s) {
    const double expected = plain.step(ids);
    difference = std::max({difference, std::abs(alone.step(ids) - expected), std::abs(forced.step(ids) - expected)});
  }
  std::vector<double> times = plain.seconds;
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"layers\": %lld, \"d\": %lld, \"plain_step_s\": %.4f, \"sharded_alone\": %.4f, \"resharding_forced\": %.4f, "
      "\"largest_loss_difference\": %.2e}\n",
      static_cast<long long>(a["--layers"]), static_cast<long long>(a["--d"]), times[times.size() / 2],
      median_ratio(alone, plain), median_ratio(forced, plain), difference);
  tessera::shutdown();
  return 0;
}
