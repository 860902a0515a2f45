#include "program.h"

#include <tessera/format/safetensors/safetensors.h>

#include <algorithm>
#include <filesystem>
#include <memory>

namespace tessera::testing {
namespace {

/// A base model trained in base/, and runs that train adapters on it.
class LoraTest : public ToolTest {
 protected:
  LoraTest() {
    if (!base_) {  // trained once for all tests, then copied
      const auto run = tessera(training("base", batch(6, 1, 20) + Strings{"--save_strategy", "no"}));
      EXPECT_EQ(run.exit_code, 0) << run.err;
      base_ = std::make_unique<TemporaryFolder>();
      std::filesystem::copy(at("base"), base_->path(), std::filesystem::copy_options::recursive);
    } else {
      std::filesystem::copy(base_->path(), at("base"), std::filesystem::copy_options::recursive);
    }
  }
  static void TearDownTestSuite() { base_.reset(); }

  Strings finetuning(const std::string& output, const Strings& more) const {
    return Strings{
               "train", "--model_name_or_path", at("base"), "--train_file",        at("text.txt"), "--block_size",
               "32",    "--learning_rate",      "1e-2",     "--lr_scheduler_type", "constant",     "--logging_steps",
               "1",     "--output_dir",         at(output)} +
           more;
  }
  Strings adapters(const std::string& output, const Strings& more = {}) const {
    return finetuning(output, Strings{"--lora_r", "4", "--lora_alpha", "32", "--lora_dropout", "0.1"} + more);
  }
  std::string bytes(const std::string& name) const { return read_file(at(name)); }
  std::string sampled(const std::string& model) const {
    const auto run = tessera({"generate", "--model_name_or_path", at(model), "--prompt", "the 3 small", "--seed", "7",
                              "--max_new_tokens", "20"});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  }
  /// Expects exit code 2, the text in the message, and that nothing was written.
  void expect_refused(const Strings& arguments, const std::string& text) const {
    const Strings before = files();
    const auto run = tessera(arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(run.err, text)) << text << " in " << run.err;
    EXPECT_EQ(files(), before);
  }

 private:
  static inline std::unique_ptr<TemporaryFolder> base_;
};

TEST_F(LoraTest, AResumeSaysThatTheBaseIsAnother) {
  ASSERT_EQ(tessera(adapters("out", batch(6, 1, 2))).exit_code, 0);
  const auto go_on = [&](int steps) {
    return tessera(adapters("out", batch(6, 1, steps) + Strings{"--resume_from_checkpoint", "last"})).err;
  };
  const std::string same = go_on(3);
  EXPECT_FALSE(contains(same, "base model of the adapters")) << same;
  std::string weights = bytes("base/model.safetensors");
  weights[weights.size() - 4] ^= 1;  // a low bit of the last number
  write_file_atomically(at("base/model.safetensors"), weights);
  const std::string other = go_on(4);
  EXPECT_TRUE(contains(other, "base model of the adapters ")) << other;
  EXPECT_TRUE(contains(other, " (was ")) << other;
}

TEST_F(LoraTest, TrainsAdaptersAndSavesAPeftFolder) {
  const std::string base = bytes("base/model.safetensors");
  const auto run = tessera(adapters("out", batch(6, 1, 12)));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  // 2 layers x 4 x (32 + 96); 257 x 32 + 64 x 32 + 2 x 12704 + 64 + 1024
  EXPECT_TRUE(contains(run.out + run.err, "trainable params: 1,024 || all params: 36,768 || trainable%: 2.7850"))
      << run.out << run.err;
  const auto losses = curve("out");
  EXPECT_LT(losses.at(12), losses.at(1));
  EXPECT_EQ(bytes("base/model.safetensors"), base);

  const Value config = read_json(at("out/adapter_config.json"));
  EXPECT_EQ(config.at("peft_type").as_string(), "LORA");
  EXPECT_EQ(config.at("base_model_name_or_path").as_string(), at("base"));
  EXPECT_EQ(config.at("r").as_int(), 4);
  EXPECT_EQ(config.at("lora_alpha").as_int(), 32);
  EXPECT_EQ(config.at("lora_dropout").as_real(), 0.1);
  EXPECT_TRUE(config.at("fan_in_fan_out").as_bool());
  EXPECT_EQ(config.at("target_modules").items().at(0).as_string(), "c_attn");
  EXPECT_EQ(format::SafetensorsFile(at("out/adapter_model.safetensors")).tensors().size(), 4u);
  for (const char* folder : {"out", "out/checkpoint-12"}) {
    EXPECT_FALSE(path_exists(at(std::string(folder) + "/model.safetensors"))) << folder;
    EXPECT_FALSE(path_exists(at(std::string(folder) + "/config.json"))) << folder;
  }
  EXPECT_EQ(bytes("out/checkpoint-12/adapter_model.safetensors"), bytes("out/adapter_model.safetensors"));
  const format::SafetensorsFile optimizer(at("out/checkpoint-12/optimizer.safetensors"));
  EXPECT_EQ(optimizer.tensors().size(), 8u) << "two moments of four adapters";
}

TEST_F(LoraTest, ResumesBitForBitOnOneProcessAndOnTwo) {
  for (const char* processes : {"1", "2"}) {
    const std::string whole = concat("whole", processes), rest = concat("rest", processes);
    const Strings common = Strings{"--num_processes", processes} + batch(3, 2, 6);
    const auto first = tessera(adapters(whole, common + Strings{"--save_steps", "4"}));
    ASSERT_EQ(first.exit_code, 0) << first.err;
    const auto second =
        tessera(adapters(rest, common + Strings{"--resume_from_checkpoint", at(whole + "/checkpoint-4")}));
    ASSERT_EQ(second.exit_code, 0) << second.err;
    EXPECT_EQ(curve(rest).at(6), curve(whole).at(6));
    EXPECT_EQ(bytes(rest + "/adapter_model.safetensors"), bytes(whole + "/adapter_model.safetensors"));
    EXPECT_EQ(bytes(rest + "/checkpoint-6/optimizer.safetensors"),
              bytes(whole + "/checkpoint-6/optimizer.safetensors"));
  }
}

TEST_F(LoraTest, TwoProcessesEqualOne) {
  const auto without_dropout = [&](const std::string& output, const Strings& more) {
    return tessera(finetuning(output, Strings{"--lora_r", "4", "--lora_target_modules", "all-linear"} + more));
  };
  ASSERT_EQ(without_dropout("one", batch(6, 1, 5)).exit_code, 0);
  ASSERT_EQ(without_dropout("two", batch(3, 1, 5) + Strings{"--num_processes", "2"}).exit_code, 0);
  const auto one = curve("one"), two = curve("two"), norms = curve("one", "grad_norm"),
             others = curve("two", "grad_norm");
  for (const auto& [step, loss] : one) {
    EXPECT_NEAR(two.at(step), loss, 1e-6 * loss);
    EXPECT_NEAR(others.at(step), norms.at(step), 1e-5 * norms.at(step));
  }
}

TEST_F(LoraTest, MergedModelIsAnOrdinaryFolderThatSaysTheSame) {
  const auto run = tessera(adapters("out", batch(6, 1, 12) + Strings{"--lora_merge", "--save_strategy", "no"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.out + run.err, "merged model:  " + at("out/merged"))) << run.out << run.err;
  const format::SafetensorsFile base(at("base/model.safetensors")), merged(at("out/merged/model.safetensors"));
  ASSERT_EQ(merged.tensors().size(), base.tensors().size());
  for (const auto& tensor : base.tensors()) {
    const auto* other = merged.find(tensor.name);
    ASSERT_NE(other, nullptr) << tensor.name;
    EXPECT_EQ(other->shape, tensor.shape);
    const auto a = base.bytes(tensor), b = merged.bytes(*other);
    const bool adapted = tensor.name.ends_with("c_attn.weight");
    EXPECT_EQ(std::equal(a.begin(), a.end(), b.begin(), b.end()), !adapted) << tensor.name;
  }
  EXPECT_FALSE(path_exists(at("out/merged/adapter_config.json")));
  EXPECT_EQ(sampled("out"), sampled("out/merged"));
  EXPECT_NE(sampled("out"), sampled("base")) << "or the comparison says nothing";
}

TEST_F(LoraTest, AnAdapterFolderContinues) {
  ASSERT_EQ(tessera(adapters("first", batch(6, 1, 12))).exit_code, 0);
  Strings again = finetuning("second", batch(6, 1, 4) + Strings{"--lora_merge"});
  *std::find(again.begin(), again.end(), at("base")) = at("first");
  const auto run = tessera(again);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_FALSE(contains(run.err, "has no effect")) << run.err;
  EXPECT_LT(curve("second").at(1), curve("first").at(1) - 0.05) << "the same batch, after what was learnt";
  EXPECT_EQ(read_json(at("second/adapter_config.json")).at("base_model_name_or_path").as_string(), at("base"));
  EXPECT_TRUE(path_exists(at("second/merged/model.safetensors")));

  Strings more = again + Strings{"--lora_r", "4"};
  *std::find(more.begin(), more.end(), at("second")) = at("third");
  expect_refused(more, "already contains adapters");
}

TEST_F(LoraTest, OverwritingReplacesTheOtherKindOfModel) {
  ASSERT_EQ(tessera(training("out", batch(6, 1, 2))).exit_code, 0);
  ASSERT_EQ(tessera(adapters("out", batch(6, 1, 2) + Strings{"--overwrite_output_dir"})).exit_code, 0);
  EXPECT_FALSE(path_exists(at("out/model.safetensors")));
  EXPECT_TRUE(path_exists(at("out/adapter_model.safetensors")));
  ASSERT_EQ(tessera(training("out", batch(6, 1, 2) + Strings{"--overwrite_output_dir"})).exit_code, 0);
  EXPECT_FALSE(path_exists(at("out/adapter_config.json")));
  EXPECT_TRUE(path_exists(at("out/model.safetensors")));
}

TEST_F(LoraTest, BadInputIsRefusedBeforeAnythingIsWritten) {
  expect_refused(adapters("out", batch(6, 1, 2) + Strings{"--lora_target_modules", "c_atn"}), "did you mean 'c_attn'?");
  expect_refused(adapters("out", batch(6, 1, 2) + Strings{"--lora_target_modules", "wte"}), "not a linear map");
  expect_refused(adapters("out", batch(6, 1, 2) + Strings{"--lora_target_modules", "c_attn,"}), "empty name");
  expect_refused(training("out", batch(6, 1, 2) + Strings{"--lora_r", "4"}), "--lora_r needs --model_name_or_path");
  expect_refused(adapters("base", batch(6, 1, 2) + Strings{"--overwrite_output_dir"}), "contains the base model");
}

TEST_F(LoraTest, ARankThatIsNotLowIsWarnedOf) {
  const auto run = tessera(finetuning("out", Strings{"--lora_r", "64", "--save_strategy", "no"} + batch(6, 1, 1)));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "--lora_r 64 is not below")) << run.err;
}

TEST_F(LoraTest, DamagedAdaptersAndOtherRunsCheckpoints) {
  ASSERT_EQ(tessera(adapters("good", batch(6, 1, 2))).exit_code, 0);
  expect_refused(adapters("out", batch(6, 1, 4) + Strings{"--resume_from_checkpoint", at("good/checkpoint-2"),
                                                          "--lora_target_modules", "c_proj"}),
                 "unexpected tensor transformer.h.0.attn.c_attn.lora_A.weight");
  expect_refused(finetuning("out", batch(6, 1, 4) + Strings{"--resume_from_checkpoint", at("good/checkpoint-2")}),
                 "it contains LoRA adapters, but this run trains all weights");
  expect_refused(finetuning("out", batch(6, 1, 4) + Strings{"--resume_from_checkpoint", at("good/checkpoint-2"),
                                                            "--lora_r", "4", "--lora_alpha", "8"}),
                 "use the same --lora_r and --lora_alpha");
  const std::string weights = bytes("good/adapter_model.safetensors");
  write_file_atomically(at("good/adapter_model.safetensors"), weights.substr(0, weights.size() - 100));
  const Strings generate = {"generate", "--model_name_or_path", at("good"), "--prompt", "the"};
  expect_refused(generate, "adapter_model.safetensors");
  write_file_atomically(at("good/adapter_model.safetensors"), weights);
  std::string config = bytes("good/adapter_config.json");
  config.replace(config.find("\"bias\": \"none\""), 14, "\"use_dora\":true");
  write_file_atomically(at("good/adapter_config.json"), config);
  expect_refused(generate, "adapter_config.json:4:");
}

}  // namespace
}  // namespace tessera::testing
