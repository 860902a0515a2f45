// Resuming from checkpoints of earlier versions of the program (tests/fixtures/checkpoints).

#include "program.h"

#include <tests/paths.h>

#include <tessera/format/safetensors/safetensors_index.h>

#include <filesystem>

namespace tessera::testing {
namespace {

class OldCheckpoints : public ToolTest {
 protected:
  static std::string fixture(const std::string& kind) {
    return source_path("tests/fixtures/checkpoints/" + kind + "/checkpoint-2");
  }
  Strings resuming(const std::string& kind, const std::string& output, const Strings& more) const {
    return Strings{"train",       "--train_file", at("text.txt"), "--block_size",
                   "16",          "--report_to",  "none",         "--resume_from_checkpoint",
                   fixture(kind), "--output_dir", at(output)} +
           more;
  }
  static Strings new_model() {
    return {"--config_name",
            "gpt2-tiny",
            "--config_overrides",
            "n_layer=1,n_embd=2,n_head=1,vocab_size=257,n_positions=16,bos_token_id=256,eos_token_id=256",
            "--tokenizer_name",
            "byte"};
  }
  /// Steps with a learning rate too small to change a bit.
  static Strings standing_still(int rows, int steps = 3) {
    return Strings{"--learning_rate", "1e-30", "--lr_scheduler_type", "constant"} + batch(rows, 1, steps);
  }
  static std::map<std::string, std::string> tensors(const std::string& folder, const std::string& stem = "model") {
    std::map<std::string, std::string> all;
    const format::SafetensorsFolder files(folder, stem);
    for (const auto& stored : files.tensors()) {
      const auto bytes = files.bytes(stored);
      all[stored.info.name] = std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return all;
  }
  void expect_went_on(const Strings& arguments, const std::string& kind, const std::string& output,
                      const std::string& stem = "model") const {
    const auto run = tessera(arguments);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    EXPECT_TRUE(contains(run.out + run.err, "at step 2")) << run.out << run.err;
    EXPECT_EQ(tensors(at(output), stem), tensors(fixture(kind), stem)) << kind;
  }
};

TEST_F(OldCheckpoints, InParts) {
  for (const char* ranks : {"1", "2"}) {
    const std::string output = concat("out", ranks);
    expect_went_on(resuming("sharded", output,
                            new_model() + standing_still(ranks == std::string("1") ? 4 : 2) +
                                Strings{"--num_processes", ranks, "--fsdp", "full_shard", "--fp16"}),
                   "sharded", output);
    const Value state = read_json(at(output + "/checkpoint-3/tessera_state.json"));
    EXPECT_EQ(state.at("step").as_int(), 3);
    EXPECT_EQ(state.at("samples").as_int(), 12);
    EXPECT_EQ(state.at("optimizer_steps").as_int(), 3);
    EXPECT_EQ(state.at("loss_scale").at("scale").as_real(), 65536);
    EXPECT_EQ(state.at("loss_scale").at("good_steps").as_int(), 3);
  }
}

TEST_F(OldCheckpoints, Whole) {
  expect_went_on(resuming("full", "out",
                          new_model() + batch(2, 1, 2) +
                              Strings{"--lr_scheduler_type", "reduce_lr_on_plateau", "--eval_strategy", "steps",
                                      "--eval_steps", "1", "--metric_for_best_model", "loss"}),
                 "full", "out");
  const Value was = read_json(fixture("full") + "/trainer_state.json"), is = read_json(at("out/trainer_state.json"));
  for (const char* key : {"best_metric", "best_global_step", "global_step"})
    EXPECT_EQ(dump_json(is.at(key)), dump_json(was.at(key))) << key;
}

TEST_F(OldCheckpoints, OfAdapters) {
  expect_went_on(
      resuming("lora", "out", Strings{"--model_name_or_path", fixture("full"), "--lora_r", "1"} + standing_still(2)),
      "lora", "out", "adapter_model");
  EXPECT_EQ(read_json(at("out/checkpoint-3/tessera_state.json")).at("optimizer_steps").as_int(), 3);
  EXPECT_EQ(list_folder(at("out/checkpoint-3")), list_folder(fixture("lora")));
}

}  // namespace
}  // namespace tessera::testing
