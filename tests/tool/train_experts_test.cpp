// A mixture of experts, trained and saved by the program: the routers' state that is not learned by gradients is kept.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include <tessera/format/safetensors/safetensors.h>
#include <tests/tool/program.h>

namespace tessera::testing {
namespace {

class TrainExperts : public ToolTest {
 protected:
  Strings run(const std::string& output, int steps, const Strings& more = {}) const {
    return Strings{"train",
                   "--config_name",
                   source_path("tests/fixtures/llama/deepseek_v3/config.json"),
                   "--config_overrides",
                   "vocab_size=257",
                   "--tokenizer_name",
                   "byte",
                   "--train_file",
                   at("text.txt"),
                   "--block_size",
                   "32",
                   "--max_steps",
                   std::to_string(steps),
                   "--lr_scheduler_type",
                   "constant",
                   "--learning_rate",
                   "1e-3",
                   "--logging_steps",
                   "1",
                   "--save_steps",
                   "2",
                   "--router_aux_loss_coef",
                   "0.01",
                   "--router_bias_update_rate",
                   "0.125",
                   "--output_dir",
                   at(output)} +
           more;
  }
  std::vector<Value> logged(const std::string& output) const {
    std::vector<Value> lines;
    for (const std::string& text : split(read_file(at(output) + "/metrics.jsonl"), '\n'))
      if (!text.empty()) lines.push_back(parse_json(text, output));
    return lines;
  }
  /// The router biases of block 1 in a folder's weights.
  std::vector<float> biases(const std::string& folder) const {
    const format::SafetensorsFile file(folder + "/model.safetensors");
    const format::TensorInfo* info = file.find("model.layers.1.mlp.gate.e_score_correction_bias");
    if (info == nullptr) return {};
    std::vector<float> values(8);
    const std::string bytes = read_file(folder + "/model.safetensors");
    std::uint64_t header = 0;
    std::memcpy(&header, bytes.data(), sizeof header);
    std::memcpy(values.data(), bytes.data() + sizeof header + header + info->begin, 8 * sizeof(float));
    return values;
  }
};

TEST_F(TrainExperts, BiasesAreSavedAndResumed) {
  int way = 0;
  for (const Strings& ways : {Strings{}, Strings{"--num_processes", "2", "--fsdp", "full_shard"}}) {
    const std::string name = concat("whole", way), again = concat("again", way);
    ++way;
    const auto whole = tessera(run(name, 5, ways));
    ASSERT_EQ(whole.exit_code, 0) << whole.err;
    const std::vector<float> after_five = biases(at(name));
    ASSERT_EQ(after_five.size(), 8u) << "not in the folder";
    EXPECT_NE(after_five, std::vector<float>(8, 0));
    for (const float bias : after_five) {
      EXPECT_LE(std::abs(bias), 0.625f);
      EXPECT_EQ(std::fmod(bias, 0.125f), 0) << "steps of 0.125";
    }
    const auto resumed =
        tessera(run(again, 5, ways + Strings{"--resume_from_checkpoint", at(concat(name, "/checkpoint-2"))}));
    ASSERT_EQ(resumed.exit_code, 0) << resumed.err;
    EXPECT_EQ(biases(at(again)), after_five);
    const auto lines = logged(name), later = logged(again);
    EXPECT_EQ(later.at(2).at("loss").as_real(), lines.at(4).at("loss").as_real());
    EXPECT_EQ(lines.at(4).at("expert_load").items().size(), 8u);
    EXPECT_GT(lines.at(4).at("router_aux_loss").as_real(), 1);
    EXPECT_GE(lines.at(4).at("expert_imbalance").as_real(), 1);
    EXPECT_NE(read_file(at(concat(name, "/report.html"))).find("\"expert_load\":[{\"block\":1"), std::string::npos);
  }
}

TEST_F(TrainExperts, SettingsForOtherModelsAreRefused) {
  const auto refused = tessera(training("out", {"--max_steps", "1", "--router_aux_loss_coef", "0.1"}));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_NE(refused.err.find("has no routers"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace tessera::testing
