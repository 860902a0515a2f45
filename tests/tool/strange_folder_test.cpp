// `tessera train` with model folders written by other programs: additional files are carried over, the printed
// information about them is true, and a tokenizer may have more tokens than the embedding has rows.

#include "program.h"

namespace tessera::testing {
namespace {

const std::string tokenizer = source_path("tests/fixtures/chat_examples");  // 438 tokens

class StrangeFolder : public ToolTest {
 protected:
  StrangeFolder() {
    const auto run = tessera(training("base", batch(6, 1, 1) + Strings{"--save_strategy", "no"}));
    EXPECT_EQ(run.exit_code, 0) << run.err;
  }
  Strings finetuning(const std::string& output, const Strings& more = {}) const {
    return Strings{"train",        "--model_name_or_path", at("base"), "--train_file",
                   at("text.txt"), "--block_size",         "32",       "--report_to",
                   "none",         "--logging_steps",      "1",        "--output_dir",
                   at(output)} +
           more;
  }
  Value config(const std::string& folder) const { return read_json(at(folder + "/config.json")); }
};

TEST_F(StrangeFolder, WhatIsBesideTheWeightsIsCarriedAndWhatIsSaidOfThemIsTrue) {
  const std::string generation = "{\"eos_token_id\": [256, 10],\n \"temperature\": 0.6}";
  write_file_atomically(at("base/generation_config.json"), generation);
  write_file_atomically(at("base/special_tokens_map.json"), "{\"eos_token\": \"<|endoftext|>\"}");
  Value said = config("base");
  said.set("torch_dtype", Value::of("bfloat16"));
  said.set("resid_pdrop", Value::of(0.1));
  said.set("quantization_config", Value::make_object({{"quant_method", Value::of("gptq")}}));
  write_file_atomically(at("base/config.json"), dump_json(said));
  const Strings saves = {"--save_steps", "1", "--disable_dropout"};
  const auto whole = tessera(finetuning("whole", batch(2, 1, 1) + saves));
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  EXPECT_TRUE(
      contains(whole.err, "its weights are not quantized, although its config.json specifies quantization (gptq)"))
      << whole.err;
  const auto adapters = tessera(finetuning("adapters", batch(2, 1, 1) + Strings{"--lora_r", "2", "--lora_merge"}));
  ASSERT_EQ(adapters.exit_code, 0) << adapters.err;
  for (const char* folder : {"whole", "whole/checkpoint-1", "adapters/merged"}) {
    EXPECT_EQ(read_file(at(concat(folder, "/generation_config.json"))), generation) << folder;
    EXPECT_FALSE(config(folder).contains("quantization_config")) << folder;
    EXPECT_EQ(config(folder).at("torch_dtype").as_string(), "float32") << folder;
    EXPECT_EQ(config(folder).at("resid_pdrop").as_real(), 0.1) << "the run alone did without: " << folder;
  }
  for (const char* folder : {"whole", "whole/checkpoint-1", "adapters", "adapters/merged"})
    EXPECT_TRUE(path_exists(at(concat(folder, "/special_tokens_map.json")))) << folder;
  EXPECT_EQ(tessera({"checkpoint", "verify", at("whole/checkpoint-1")}).exit_code, 0);
  // The next model's tokenizer does not have this file.
  const auto next =
      tessera(finetuning("whole", batch(2, 1, 1) + Strings{"--overwrite_output_dir", "--tokenizer_name", "byte"}));
  ASSERT_EQ(next.exit_code, 0) << next.err;
  EXPECT_FALSE(path_exists(at("whole/special_tokens_map.json")));
}

TEST_F(StrangeFolder, ATokenizerWithMoreTokensGetsRowsOnAnyMesh) {
  const Strings more = {"--tokenizer_name", tokenizer, "--save_strategy", "no", "--learning_rate", "1e-2"};
  const auto one = tessera(finetuning("one", batch(4, 1, 2) + more));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_TRUE(contains(one.err, "has 438 tokens, but the model's embedding has 257 rows: 181 rows are added"))
      << one.err;
  EXPECT_EQ(config("one").at("vocab_size").as_int(), 438);
  const struct {
    const char* name;
    Strings flags;
  } meshes[] = {{"fsdp", batch(2, 1, 2) + Strings{"--fsdp", "full_shard"}},
                {"tp", batch(4, 1, 2) + Strings{"--tp_size", "2"}},
                {"pp", batch(2, 2, 2) + Strings{"--pp_size", "2"}}};
  for (const auto& mesh : meshes) {
    const auto run = tessera(finetuning(mesh.name, mesh.flags + more + Strings{"--num_processes", "2"}));
    ASSERT_EQ(run.exit_code, 0) << mesh.name << run.err;
    for (const auto& [step, loss] : curve("one"))
      EXPECT_NEAR(curve(mesh.name).at(step), loss, 1e-5 * loss) << mesh.name << " step " << step;
  }
  const auto fresh = tessera(training("fresh", batch(2, 1, 1)) + Strings{"--tokenizer_name", tokenizer});
  ASSERT_EQ(fresh.exit_code, 0) << fresh.err;
  EXPECT_EQ(config("fresh").at("vocab_size").as_int(), 438);
}

TEST_F(StrangeFolder, AMetricThatNothingFollowsIsAWarning) {
  const Strings metric = {"--metric_for_best_model", "accuracy"};
  const auto run = tessera(training("out", batch(4, 1, 1) + metric));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_TRUE(contains(run.err, "nothing depends on it, so it has no effect")) << run.err;
  const auto best = tessera(
      training("best", batch(4, 1, 1) + metric + Strings{"--save_strategy", "best", "--eval_strategy", "epoch"}));
  EXPECT_EQ(best.exit_code, 2) << best.err;
}

TEST_F(StrangeFolder, ARunThatIsOverSaysThatNoStepWasLeft) {
  ASSERT_EQ(tessera(training("out", batch(4, 1, 4))).exit_code, 0);
  const auto again = tessera(training("out", batch(4, 1, 2) + Strings{"--resume_from_checkpoint", "last"}));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_TRUE(contains(again.err + again.out, "done after step 4, where it started: no steps were left to do"))
      << again.err;
}

TEST_F(StrangeFolder, AdaptersBesideNewRowsAreSavedWithTheEmbedding) {
  const Strings more = {"--tokenizer_name", tokenizer, "--lora_r", "2", "--learning_rate", "1e-2"};
  const auto two = tessera(finetuning(
      "two", batch(2, 1, 2) + more + Strings{"--num_processes", "2", "--fsdp", "full_shard", "--lora_merge"}));
  ASSERT_EQ(two.exit_code, 0) << two.err;
  EXPECT_TRUE(contains(two.err, "saved with the adapters")) << two.err;
  EXPECT_TRUE(contains(read_file(at("two/adapter_model.safetensors")), "base_model.model.transformer.wte.weight"));
  EXPECT_EQ(config("two/merged").at("vocab_size").as_int(), 438);
  const auto one = tessera(finetuning("one", batch(4, 1, 2) + more));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  EXPECT_NEAR(curve("one").at(2), curve("two").at(2), 1e-5 * curve("one").at(2));
  // A run that continues from the folder keeps the rows.
  for (const Strings& mesh : {Strings{}, Strings{"--num_processes", "2", "--pp_size", "2"}}) {
    const auto on = tessera(Strings{"train", "--model_name_or_path", at("one"), "--train_file", at("text.txt"),
                                    "--block_size", "32", "--output_dir", at("on"), "--overwrite_output_dir",
                                    "--save_strategy", "no", "--report_to", "none"} +
                            batch(2, 2, 1) + mesh);
    ASSERT_EQ(on.exit_code, 0) << on.err;
    EXPECT_TRUE(contains(read_file(at("on/adapter_model.safetensors")), "base_model.model.transformer.wte.weight"));
  }
}

}  // namespace
}  // namespace tessera::testing
