/// \file
/// Times training steps of one process: GPT-2, AdamW, the token generator of the peers' program. Prints one JSON line.
///
///   step_bench [--steps 10] [--warmup 2] [--threads 2] [--layers 4 --d 256 --heads 4 --T 256 --B 8 --vocab 8192]
///
/// cpu_s_step (user + system seconds of the process per step) is the more stable figure on a shared machine.

#include <ATen/Parallel.h>
#include <tessera/base/text.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/optim/optimizer.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <map>

using namespace tessera;

namespace {

/// 31-bit linear congruential generator restarted per step: x0 = step + 1; token = (x >> 8) mod V, row by row.
at::Tensor tokens(std::int64_t step, std::int64_t b, std::int64_t t, std::int64_t v) {
  at::Tensor ids = at::empty({b, t}, at::kLong);
  std::uint32_t x = static_cast<std::uint32_t>(step + 1);
  for (std::int64_t i = 0; i < b * t; ++i) {
    x = (1103515245u * x + 12345u) & 0x7fffffffu;
    ids.data_ptr<std::int64_t>()[i] = (x >> 8) % v;
  }
  return ids;
}

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::int64_t> a{{"--steps", 10}, {"--warmup", 2}, {"--threads", 2},
                                        {"--layers", 4}, {"--d", 256},    {"--heads", 4},
                                        {"--T", 256},    {"--B", 8},      {"--vocab", 8192}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!a.count(argv[i])) return std::fprintf(stderr, "step_bench: unknown option %s\n", argv[i]), 2;
    a[argv[i]] = std::stoll(argv[i + 1]);
  }
  nn::keep_memory();
  at::set_num_threads(static_cast<int>(a["--threads"]));
  Value config = models::preset("gpt2-tiny");
  config.set("n_layer", Value::of(a["--layers"]));
  config.set("n_embd", Value::of(a["--d"]));
  config.set("n_head", Value::of(a["--heads"]));
  config.set("n_positions", Value::of(a["--T"]));
  config.set("vocab_size", Value::of(a["--vocab"]));
  auto model = models::make_model(config, 0);
  model->train();
  std::vector<optim::Slot> slots;
  for (auto& p : model->named_parameters())
    slots.push_back({p.key(), p.value(), model->is_norm_or_bias(p.key()) ? 0.0 : 0.1, 1.0});
  auto optimizer = optim::make_adamw(slots, {0.9, 0.95, 1e-8});
  const std::int64_t b = a["--B"], t = a["--T"], steps = a["--steps"], warmup = a["--warmup"];
  std::vector<double> times;
  std::string losses;
  double cpu = 0;
  for (std::int64_t s = 0; s < steps; ++s) {
    const at::Tensor ids = tokens(s, b, t, a["--vocab"]);
    if (s == warmup) cpu = cpu_seconds();
    const auto begin = std::chrono::steady_clock::now();
    const at::Tensor loss = model->loss(ids, ids, 1.0 / static_cast<double>(b * (t - 1)));
    loss.backward();
    optimizer->step(3e-4);
    for (auto& slot : slots) slot.parameter.mutable_grad().reset();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
    losses += concat(s ? ", " : "", format_real(loss.item<double>(), 7));
  }
  cpu = (cpu_seconds() - cpu) / static_cast<double>(std::max<std::int64_t>(1, steps - warmup));
  std::vector<double> timed(times.begin() + std::min(warmup, steps - 1), times.end());
  std::sort(timed.begin(), timed.end());
  const double median = timed[timed.size() / 2], n = static_cast<double>(b * t);
  std::printf(
      "{\"tok_s\": %.1f, \"tok_s_best\": %.1f, \"step_s_median\": %.4f, \"step_s_min\": %.4f, \"cpu_s_step\": %.4f, "
      "\"losses\": [%s]}\n",
      n / median, n / timed[0], median, timed[0], cpu, losses.c_str());
  return 0;
}
