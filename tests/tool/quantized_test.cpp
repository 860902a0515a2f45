// QLoRA as a user runs it: adapters on frozen weights of four and eight bits.
#include "program.h"

#include <tessera/format/safetensors/safetensors.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>

namespace tessera::testing {
namespace {

/// A Llama trained in base/, and runs that train adapters on its quantized weights.
class QuantizedTest : public ToolTest {
 protected:
  QuantizedTest() {
    if (!base_) {  // trained once for all tests, then copied
      const auto run = tessera(Strings{"train", "--config_name", "llama-tiny", "--config_overrides",
                                       "num_hidden_layers=2,hidden_size=64,intermediate_size=96,num_attention_heads=4,"
                                       "num_key_value_heads=2,head_dim=16,vocab_size=257,max_position_embeddings=64",
                                       "--tokenizer_name", "byte", "--train_file", at("text.txt"), "--block_size", "32",
                                       "--learning_rate", "1e-2", "--lr_scheduler_type", "constant", "--save_strategy",
                                       "no", "--output_dir", at("base")} +
                               batch(6, 1, 40));
      EXPECT_EQ(run.exit_code, 0) << run.err;
      base_ = std::make_unique<TemporaryFolder>();
      std::filesystem::copy(at("base"), base_->path(), std::filesystem::copy_options::recursive);
    } else {
      std::filesystem::copy(base_->path(), at("base"), std::filesystem::copy_options::recursive);
    }
  }
  static void TearDownTestSuite() { base_.reset(); }

  Strings finetuning(const std::string& output, const Strings& more) const {
    return Strings{"train",
                   "--model_name_or_path",
                   at("base"),
                   "--train_file",
                   at("text.txt"),
                   "--block_size",
                   "32",
                   "--learning_rate",
                   "3e-3",
                   "--lr_scheduler_type",
                   "constant",
                   "--logging_steps",
                   "1",
                   "--lora_r",
                   "4",
                   "--lora_target_modules",
                   "all-linear",
                   "--output_dir",
                   at(output)} +
           more;
  }
  /// Expects the run to succeed; returns its output.
  std::string ran(const std::string& output, const Strings& more) const {
    const auto run = tessera(finetuning(output, more));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out + run.err;
  }
  std::string bytes(const std::string& name) const { return read_file(at(name)); }
  double first_loss(const std::string& output) const { return curve(output).at(1); }

 private:
  static inline std::unique_ptr<TemporaryFolder> base_;
};

const Strings four = {"--load_in_4bit", "true"};

TEST_F(QuantizedTest, TrainsAdaptersAndSavesAPeftFolder) {
  const std::string base = bytes("base/model.safetensors");
  const std::string said = ran("out", four + batch(6, 1, 12) + Strings{"--bnb_4bit_use_double_quant"});
  // 2 layers x (2 of 64 x 64, 2 of 64 x 32, 3 of 64 x 96)
  EXPECT_TRUE(contains(said, "frozen weights: 14 linear maps in nf4 with double quantization: ")) << said;
  EXPECT_TRUE(contains(said, "in place of 240.0 KiB")) << said;
  const auto losses = curve("out");
  EXPECT_LT(losses.at(12), losses.at(1) - 0.1);
  EXPECT_EQ(bytes("base/model.safetensors"), base);
  EXPECT_EQ(read_json(at("out/adapter_config.json")).at("base_model_name_or_path").as_string(), at("base"));
  EXPECT_EQ(format::SafetensorsFile(at("out/adapter_model.safetensors")).tensors().size(), 28u);
  for (const char* folder : {"out", "out/checkpoint-12"})
    EXPECT_FALSE(path_exists(at(std::string(folder) + "/model.safetensors"))) << folder;
}

TEST_F(QuantizedTest, EverySettingChangesWhatIsComputed) {
  const std::vector<std::pair<std::string, Strings>> runs = {
      {"whole", {}},
      {"nf4", four},
      {"fp4", four + Strings{"--bnb_4bit_quant_type", "fp4"}},
      {"double", four + Strings{"--bnb_4bit_use_double_quant"}},
      {"bf16", four + Strings{"--bnb_4bit_compute_dtype", "bfloat16"}},
      {"int8", {"--load_in_8bit"}}};
  std::map<std::string, double> loss;
  for (const auto& [name, flags] : runs) {
    ran(name, flags + batch(6, 1, 1) + Strings{"--save_strategy", "no"});
    loss[name] = first_loss(name);
  }
  for (const auto& [name, value] : loss)
    for (const auto& [other, another] : loss) {
      if (name != other) {
        EXPECT_NE(value, another) << name << " and " << other;
      }
    }
  const auto off = [&](const char* name) { return std::fabs(loss.at(name) - loss.at("whole")) / loss.at("whole"); };
  EXPECT_LT(off("int8"), 2e-3);
  EXPECT_LT(off("nf4"), 0.05);
  EXPECT_LT(off("fp4"), 0.08);
  EXPECT_LT(off("int8"), off("nf4"));
}

TEST_F(QuantizedTest, TwoProcessesEqualOneUnderEveryStrategy) {
  const Strings double_quant = four + Strings{"--bnb_4bit_use_double_quant", "--save_strategy", "no"};
  ran("one", double_quant + batch(6, 1, 4));
  const auto one = curve("one"), norms = curve("one", "grad_norm");
  for (const char* strategy : {"ddp", "zero1", "zero2", "full_shard"}) {
    ran(strategy, double_quant + batch(3, 1, 4) + Strings{"--num_processes", "2", "--strategy", strategy});
    const auto two = curve(strategy), others = curve(strategy, "grad_norm");
    ASSERT_EQ(two.size(), one.size());
    for (const auto& [step, loss] : one) {
      EXPECT_NEAR(two.at(step), loss, 1e-6 * loss) << strategy;
      EXPECT_NEAR(others.at(step), norms.at(step), 2e-5 * norms.at(step)) << strategy;
    }
  }
}

TEST_F(QuantizedTest, APipelineEqualsOneProcess) {
  const Strings more = four + Strings{"--save_strategy", "no"};
  ran("one", more + batch(3, 2, 4));
  const std::string said = ran("pipeline", more + batch(3, 2, 4) + Strings{"--num_processes", "2", "--pp_size", "2"});
  EXPECT_TRUE(contains(said, "frozen weights: 7 linear maps in nf4")) << said;
  const auto one = curve("one"), two = curve("pipeline");
  for (const auto& [step, loss] : one) EXPECT_NEAR(two.at(step), loss, 1e-6 * loss);
  EXPECT_EQ(format::SafetensorsFile(at("pipeline/adapter_model.safetensors")).tensors().size(), 28u);
}

TEST_F(QuantizedTest, ResumesBitForBit) {
  for (const char* processes : {"1", "2"}) {
    const std::string whole = concat("whole", processes), rest = concat("rest", processes);
    const Strings common = four + Strings{"--num_processes", processes} + batch(3, 2, 6);
    ran(whole, common + Strings{"--save_steps", "4"});
    ran(rest, common + Strings{"--resume_from_checkpoint", at(whole + "/checkpoint-4")});
    EXPECT_EQ(curve(rest).at(6), curve(whole).at(6));
    EXPECT_EQ(bytes(rest + "/adapter_model.safetensors"), bytes(whole + "/adapter_model.safetensors"));
  }
}

TEST_F(QuantizedTest, AnAdapterFolderContinuesBesideQuantizedWeights) {
  ran("first", four + batch(6, 1, 10) + Strings{"--save_strategy", "no"});
  const auto run = tessera(Strings{"train", "--model_name_or_path", at("first"), "--train_file", at("text.txt"),
                                   "--block_size", "32", "--learning_rate", "3e-3", "--logging_steps", "1",
                                   "--output_dir", at("second"), "--save_strategy", "no"} +
                           four + batch(6, 1, 2));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out + run.err, "14 linear maps in nf4")) << run.out << run.err;
  EXPECT_LT(first_loss("second"), first_loss("first") - 0.1) << "the same batch, after what was learnt";
}

TEST_F(QuantizedTest, TheMergedModelIsWhatWasTrained) {
  ran("out", four + batch(6, 1, 10) + Strings{"--lora_merge", "--save_strategy", "no"});
  const format::SafetensorsFile base(at("base/model.safetensors")), merged(at("out/merged/model.safetensors"));
  ASSERT_EQ(merged.tensors().size(), base.tensors().size());
  // A step with learning rate 0 reports the loss of the model as loaded.
  const auto loss_of = [&](const std::string& model, const std::string& output, const Strings& more) {
    const auto run = tessera(Strings{"train", "--model_name_or_path", at(model), "--train_file", at("text.txt"),
                                     "--block_size", "32", "--learning_rate", "0", "--logging_steps", "1",
                                     "--output_dir", at(output), "--save_strategy", "no"} +
                             more + batch(6, 1, 1));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return first_loss(output);
  };
  const double merged_loss = loss_of("out/merged", "a", {}), beside = loss_of("out", "b", four),
               whole = loss_of("out", "c", {});
  EXPECT_NEAR(merged_loss, beside, 1e-5 * beside);
  EXPECT_GT(std::fabs(whole - beside), 1e-4 * beside) << "else the comparison says nothing";
}

TEST_F(QuantizedTest, GoesWithCheckpointingMixedPrecisionAndEvaluation) {
  const Strings more = four + batch(6, 1, 3) + Strings{"--save_strategy", "no"};
  ran("plain", more);
  ran("recomputed", more + Strings{"--gradient_checkpointing"});
  EXPECT_EQ(curve("plain"), curve("recomputed"));
  ran("mixed", more + Strings{"--bf16"});
  EXPECT_NE(curve("plain"), curve("mixed"));
  for (const auto& [step, loss] : curve("plain")) EXPECT_NEAR(curve("mixed").at(step), loss, 0.02 * loss);
  const std::string said =
      ran("evaluated", more + Strings{"--eval_strategy", "steps", "--eval_steps", "3", "--bf16_full_eval"});
  EXPECT_TRUE(contains(said, "'eval_loss'")) << said;
}

TEST_F(QuantizedTest, IsRefusedWhereItIsNotBuilt) {
  const auto refused = [&](const Strings& more, const std::string& text) {
    const auto run = tessera(finetuning("out", more + batch(6, 1, 1)));
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(run.err, text)) << text << " in " << run.err;
    EXPECT_FALSE(path_exists(at("out")));
  };
  refused(four + Strings{"--load_in_8bit"}, "a weight has one format; use only one of them");
  refused(four + Strings{"--tp_size", "2", "--num_processes", "2"}, "use --tp_size 1");
}

}  // namespace
}  // namespace tessera::testing
