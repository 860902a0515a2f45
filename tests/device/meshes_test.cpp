// `tessera train` with every family of tests/fixtures on meshes of the double's devices, with offloading and with
// adapters: the losses of one process on the CPU.
#include <gtest/gtest.h>

#include <tessera/base/value.h>
#include <tests/distributed/resume_jobs.h>
#include <tests/double/findings.h>
#include <tests/paths.h>

#include <cmath>

namespace tessera::testing {
namespace {

struct Mesh {
  std::string name;
  int ranks;
  Words flags;
};

class DeviceMeshes : public ::testing::TestWithParam<std::string> {
 protected:
  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }

  /// Losses and gradient norms of three steps.
  std::vector<double> train(const std::string& output, bool cuda, int ranks, const Words& flags) const {
    const Words words = Words{"--model_name_or_path",
                              source_path("tests/fixtures/llama/" + GetParam()),
                              "--mock_data",
                              "--block_size",
                              "16",
                              "--learning_rate",
                              "1e-3",
                              "--lr_scheduler_type",
                              "constant",
                              "--adam_epsilon",  // large: rounding of tiny gradients must not become full-size steps
                              "1e-3",
                              "--per_device_train_batch_size",
                              "2",
                              "--logging_steps",
                              "1",
                              "--report_to",
                              "none",
                              "--threads_per_process",
                              "1",
                              "--max_steps",
                              "3",
                              "--save_strategy",
                              "no",
                              "--output_dir",
                              path(output),
                              "--device",
                              cuda ? "cuda" : "cpu"} +
                        flags;
    const RunConfig run = config::resolve_and_validate(words, [](const std::string&) { return std::nullopt; }).values;
    RankOptions options;
    options.init.device = cuda ? Device::cuda : Device::cpu;
    run_ranks(
        ranks,
        [&](comm::World&) {
          be_quiet();
          EXPECT_EQ(train::train(run, Value::make_object()), ExitCode::done) << output;
          EXPECT_EQ(cuda_double::all_findings(), 0U) << output;
        },
        options);
    std::vector<double> all;
    const std::string metrics = path_join(path(output), "metrics.jsonl");
    for (const std::string& line : split(read_file(metrics), '\n')) {
      if (line.empty()) continue;
      const Value value = parse_json(line, metrics);
      if (const Value* norm = value.find("grad_norm"); norm != nullptr) {  // the line of a step, not of the end
        all.push_back(value.at("loss").as_real());
        all.push_back(norm->as_real());
      }
    }
    return all;
  }

  /// `cpu`: losses and norms of the same run on the CPU, in one process.
  void expect_same(const Mesh& mesh, const std::vector<double>& cpu) const {
    const std::vector<double> cuda = train(mesh.name, true, mesh.ranks, mesh.flags);
    ASSERT_EQ(cuda.size(), cpu.size()) << mesh.name;
    for (std::size_t i = 0; i < cpu.size(); ++i)
      EXPECT_LE(std::abs(cuda[i] - cpu[i]), (i % 2 == 0 ? 1e-6 : 2e-6) * std::abs(cpu[i]))
          << mesh.name << ": " << (i % 2 == 0 ? "loss" : "norm") << " of step " << i / 2 + 1 << ": " << cuda[i]
          << " instead of " << cpu[i];
  }

 private:
  TemporaryFolder folder_;
};

TEST_P(DeviceMeshes, HaveTheLossesOfOneProcess) {
  const std::vector<double> cpu = train("cpu", false, 1, {});
  ASSERT_EQ(cpu.size(), 6U);
  expect_same({"tp", 2, {"--tp_size", "2"}}, cpu);
  expect_same({"pp", 2, {"--pp_size", "2", "--per_device_train_batch_size", "1", "--gradient_accumulation_steps", "2"}},
              cpu);
  expect_same({"cp", 2, {"--cp_size", "2"}}, cpu);
  expect_same({"offload",
               2,
               {"--fsdp", "full_shard auto_wrap", "--cpu_offload", "all", "--per_device_train_batch_size", "1",
                "--gradient_checkpointing"}},
              cpu);
  if (GetParam().find("moe") != std::string::npos || GetParam().find("mixtral") != std::string::npos ||
      GetParam().find("deepseek") != std::string::npos)
    expect_same({"ep", 2, {"--ep_size", "2", "--per_device_train_batch_size", "1"}}, cpu);
  const Words adapters = {"--lora_r", "4", "--lora_target_modules", "all-linear"};
  expect_same({"lora", 1, adapters}, train("lora_cpu", false, 1, adapters));
}

/// One family per kind of architecture, or all with TESSERA_FULL=1.
std::vector<std::string> families() {
  if (whole_product()) return list_folder(source_path("tests/fixtures/llama"));
  return {"cohere2", "deepseek_v3", "ernie4_5", "gemma2",   "gemma3_text", "gpt_neox",  "granite",
          "helium",  "llama",       "mixtral",  "nemotron", "olmo2",       "opt",       "phi",
          "phi3",    "qwen2_moe",   "qwen3",    "smollm3",  "stablelm",    "starcoder2"};
}

INSTANTIATE_TEST_SUITE_P(Fixtures, DeviceMeshes, ::testing::ValuesIn(families()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace tessera::testing
