/// \file
/// Cost and savings of activation checkpointing, offload and compression: forward and backward of GPT-2 in one process,
/// with the variants alternating. Prints milliseconds of thread CPU time (minimum over rounds), also relative to
/// keeping everything; the peak bytes of tensors in a step beyond the model's own; and the relative error of the
/// gradients.
///
///   recompute_bench [--rounds 7] [--threads 1] [--layers 4 --d 256 --heads 4 --T 256 --B 8 --vocab 8192] [--folder
///   /tmp]

#include <ATen/Parallel.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <tessera/base/error.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/load.h>
#include <tessera/nn/allocator.h>
#include <tessera/parallel/autograd/saved_tensors.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>

using namespace tessera;

namespace {

struct Counter final : c10::MemoryReportingInfoBase {
  std::int64_t now = 0, peak = 0;
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    now += size;
    peak = std::max(peak, now);
  }
  bool memoryProfilingEnabled() const override { return true; }
};

double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

struct Way {
  const char* name;
  std::optional<parallel::CheckpointPlan> plan = {};
  std::shared_ptr<parallel::SavedTensorPolicy> policy = nullptr;
  double best = 1e9, error = 0;
  std::int64_t peak = 0;
};

}  // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> a{
      {"--rounds", "7"}, {"--threads", "1"},  {"--layers", "4"},
      {"--d", "256"},    {"--heads", "4"},    {"--T", "256"},
      {"--B", "8"},      {"--vocab", "8192"}, {"--folder", std::filesystem::temp_directory_path().string()}};
  for (int i = 1; i + 1 < argc; i += 2) {
    if (!a.count(argv[i])) return std::fprintf(stderr, "recompute_bench: unknown option %s\n", argv[i]), 2;
    a[argv[i]] = argv[i + 1];
  }
  at::set_num_threads(std::stoi(a["--threads"]));
  Value config = models::preset("gpt2-tiny");
  config.set("n_layer", Value::of(std::stol(a["--layers"])));
  config.set("n_embd", Value::of(std::stol(a["--d"])));
  config.set("n_head", Value::of(std::stol(a["--heads"])));
  config.set("n_positions", Value::of(std::stol(a["--T"])));
  config.set("vocab_size", Value::of(std::stol(a["--vocab"])));
  const auto model = models::make_model(config, 0);
  model->train();
  const std::int64_t b = std::stol(a["--B"]), t = std::stol(a["--T"]);
  at::manual_seed(1);
  const at::Tensor ids = at::randint(0, std::stol(a["--vocab"]), {b, t}, at::kLong);

  using parallel::CheckpointPart;
  std::vector<Way> ways{{"everything kept"},
                        {"blocks recomputed", parallel::CheckpointPlan{}},
                        {"every 2nd block", parallel::CheckpointPlan{.every = 2}},
                        {"attention only", parallel::CheckpointPlan{.part = CheckpointPart::attention}},
                        {"mlp only", parallel::CheckpointPlan{.part = CheckpointPart::mlp}},
                        {"blocks, inputs in a file", parallel::CheckpointPlan{.offload_inputs_to = a["--folder"]}},
                        {"everything in a file", {}, parallel::offload_policy({.to = a["--folder"]})},
                        {"bf16", {}, parallel::compress_policy({.to = ActivationFormat::bf16})},
                        {"int8", {}, parallel::compress_policy({.to = ActivationFormat::int8})}};
  std::vector<at::Tensor> reference;
  const auto step = [&](Way& way) {
    way.plan ? (void)models::checkpoint_blocks(*model, *way.plan) : models::keep_activations(*model);
    const double begin = cpu_seconds();
    at::Tensor loss;
    {
      std::optional<parallel::SavedTensors> scope;
      if (way.policy) scope.emplace(way.policy);
      loss = model->loss(ids, ids, 1.0 / static_cast<double>(b * (t - 1)));
    }
    loss.backward();
    way.best = std::min(way.best, cpu_seconds() - begin);
    double difference = 0, norm = 0;
    std::size_t i = 0;
    for (const at::Tensor& p : model->parameters()) {
      if (&way == &ways[0] && reference.size() <= i) reference.push_back(p.grad().clone());
      difference += (p.grad() - reference[i]).square().sum().item<double>();
      norm += reference[i].square().sum().item<double>();
      p.mutable_grad().reset();
      ++i;
    }
    way.error = std::sqrt(difference / norm);
  };
  // Memory is measured first: LibTorch's own allocator reports to the counter, but the one used in training does not.
  for (Way& way : ways) {
    step(way);
    const auto counter = std::make_shared<Counter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    step(way);
    way.peak = counter->peak;
  }
  nn::keep_memory();
  for (Way& way : ways) step(way), way.best = 1e9;
  for (int round = 0; round < std::stoi(a["--rounds"]); ++round)
    for (Way& way : ways) step(way);
  for (const Way& way : ways)
    std::printf("%-26s %8.1f ms  %5.2fx  peak %7.2f MB  %5.2fx  error %.1e\n", way.name, 1e3 * way.best,
                way.best / ways[0].best, static_cast<double>(way.peak) / 1e6,
                static_cast<double>(way.peak) / static_cast<double>(ways[0].peak), way.error);
}
