#pragma once
/// \file
/// Runs of the program on the simulated device and on the CPU.

#include <tests/tool/program.h>

#include <cmath>

namespace tessera::testing {

class DeviceTraining : public ToolTest {
 protected:
  struct Run {
    std::map<std::int64_t, double> losses;  // by step
    Strings findings;                       // lines of all reports
    std::size_t waits = 0;                  // rank 0's host waits
  };

  static Strings gpt2(const std::string& more = "") {
    return {
        "--config_name", "gpt2-tiny", "--config_overrides",
        concat("n_layer=2,n_embd=32,n_head=2,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256", more)};
  }

  static Strings llama() {
    return {"--config_name", "llama-tiny", "--config_overrides",
            "num_hidden_layers=2,hidden_size=32,num_attention_heads=4,num_key_value_heads=2,head_dim=8,"
            "intermediate_size=48,vocab_size=257,max_position_embeddings=64"};
  }

  Strings mixtral() const {
    write_file_atomically(at("mixtral.json"), R"({"model_type": "mixtral", "architectures": ["MixtralForCausalLM"],
      "vocab_size": 320, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
      "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2, "max_position_embeddings": 64,
      "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "router_aux_loss_coef": 0.01, "tie_word_embeddings": false})");
    return {"--config_name", at("mixtral.json")};
  }

  /// `ranks` processes on the double's devices, or on the CPU. `settings`: including the model's. `data`: data other
  /// than the text.
  Run train(const std::string& name, bool cuda, int ranks, const Strings& settings,
            launch::Environment environment = {}, Strings data = {}) const {
    if (data.empty()) data = {"--tokenizer_name", "byte", "--train_file", at("text.txt")};
    Strings command;
    if (ranks > 1) command = {"launch", "--nproc_per_node", concat(ranks), build_path("tessera")};
    command = command + Strings{"train"} + data +
              Strings{"--block_size",        "32",       "--learning_rate", learning_rate_,
                      "--lr_scheduler_type", "constant", "--logging_steps", "1",
                      "--output_dir",        at(name),   "--device",        cuda ? "cuda" : "cpu"};
    environment.emplace_back("LD_LIBRARY_PATH", build_path("double"));
    environment.emplace_back("DOUBLE_REPORT", at(name + ".report"));
    const auto result = tessera(command + settings, environment);
    EXPECT_EQ(result.exit_code, 0) << name << ": "
                                   << result.err.substr(result.err.size() -
                                                        std::min<std::size_t>(result.err.size(), 1500));
    Run run{.losses = curve(name), .findings = {}};
    for (const std::string& file : list_folder(at(""))) {
      if (!file.starts_with(name + ".report")) continue;
      for (const std::string& line : split(read_file(at(file)), '\n')) {
        if (line.starts_with("FINDING")) run.findings.push_back(line);
        if (line.starts_with("REPORT") && file.find(".rank0.") != std::string::npos) {
          run.waits += std::stoul(line.substr(line.rfind(' ')));
        }
      }
    }
    return run;
  }

  std::string learning_rate_ = "1e-2";

  /// Host waits in a steady step. The data are synthetic tokens, because the text that other runs generate at the end
  /// waits for each token.
  std::size_t waits_per_step(const std::string& name, const Strings& settings) const {
    const auto waits = [&](int steps) {
      const Strings all = settings + batch(2, 1, steps) + Strings{"--save_strategy", "no", "--logging_steps", "100"};
      return train(concat(name, steps), true, 1, all, {}, {"--mock_data"}).waits;
    };
    const std::size_t three = waits(3);
    return (waits(5) - three) / 2;
  }

  /// All reports of a run.
  std::string report(const std::string& name) const {
    std::string all;
    for (const std::string& file : list_folder(at("")))
      if (file.starts_with(name + ".report")) all += read_file(at(file));
    return all;
  }

  /// Trains both ways and compares the losses of every step.
  void expect_same(int ranks, const Strings& settings, double bound = 1e-6,
                   launch::Environment environment = {}) const {
    const Strings all = settings + Strings{"--save_strategy", "no"};
    const Run cpu = train("cpu", false, ranks, all), cuda = train("cuda", true, ranks, all, std::move(environment));
    EXPECT_EQ(cuda.findings, Strings{});
    ASSERT_FALSE(cpu.losses.empty());
    ASSERT_EQ(cuda.losses.size(), cpu.losses.size());
    for (const auto& [step, loss] : cpu.losses) {
      EXPECT_LE(std::abs(cuda.losses.at(step) - loss), bound * loss) << "step " << step;
    }
  }
};

}  // namespace tessera::testing
