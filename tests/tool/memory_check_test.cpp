/// \file
/// --memory_check: a run that cannot fit is reported before anything is loaded or written.

#include "program.h"

namespace tessera::testing {
namespace {

class MemoryCheckTest : public ToolTest {
 protected:
  /// A model of `layers` layers of 805 million parameters each, too large for the machines that run the tests.
  Strings huge(int layers, const Strings& more) const {
    write_file_atomically(at("huge.json"),
                          concat(R"({"model_type": "llama", "hidden_size": 8192, "intermediate_size": 28672,
                                   "num_attention_heads": 64, "num_key_value_heads": 64, "vocab_size": 32000,
                                   "max_position_embeddings": 4096, "num_hidden_layers": )",
                                 layers, "}"));
    return Strings{"train",
                   "--config_name",
                   at("huge.json"),
                   "--tokenizer_name",
                   "byte",
                   "--train_file",
                   at("text.txt"),
                   "--block_size",
                   "64",
                   "--max_steps",
                   "2",
                   "--output_dir",
                   at("huge")} +
           more;
  }
};

TEST_F(MemoryCheckTest, RefusesWhatCannotFit) {
  for (const Strings& more : {Strings{}, Strings{"--num_processes", "2", "--fsdp", "full_shard"},
                              Strings{"--auto_find_batch_size"}, Strings{"--bf16", "--gradient_checkpointing"}}) {
    const auto run = tessera(huge(500, more));
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_TRUE(contains(run.err, "does not fit: every rank needs ")) << run.err;
    EXPECT_TRUE(contains(run.err, "--memory_check warn starts it anyway")) << run.err;
    EXPECT_FALSE(path_exists(at("huge")));
  }
}

// A vision tower is frozen but takes memory; its folder gives its size.
TEST_F(MemoryCheckTest, CountsATowerOfImages) {
  make_folders(at("tower"));
  write_file_atomically(at("tower/config.json"),
                        R"({"model_type": "clip_vision_model", "hidden_size": 8192, "intermediate_size": 28672,
                            "num_attention_heads": 64, "num_hidden_layers": 500})");
  const auto run = tessera({"train", "--config_name", "llama-tiny", "--vision_tower", at("tower"), "--tokenizer_name",
                            "byte", "--train_file", at("text.txt"), "--max_steps", "2", "--output_dir", at("seen")});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_TRUE(contains(run.err, "does not fit: every rank needs ")) << run.err;
  EXPECT_TRUE(contains(run.err, ", parameters ")) << run.err;
  EXPECT_FALSE(path_exists(at("seen")));
}

// Frozen weights have neither gradients nor optimizer states, and in four bits take about an eighth of their bytes.
TEST_F(MemoryCheckTest, CountsWhatAdaptersNeed) {
  make_folders(at("base"));
  for (const int layers : {12, 500}) {
    huge(layers, {});
    write_file_atomically(at("base/config.json"), read_file(at("huge.json")));
    const Strings check = {"plan",     "check",        "--model_name_or_path",
                           at("base"), "--block_size", "64",
                           "--gpus",   "1xCPU/1",      "--lora_r",
                           "16",       "--memory",     "60"};
    const auto whole = tessera(check), few = tessera(check + Strings{"--load_in_4bit"});
    EXPECT_EQ(whole.exit_code, layers == 12 ? 0 : 1) << whole.out << whole.err;
    EXPECT_EQ(few.exit_code, layers == 12 ? 0 : 1) << few.out << few.err;
  }
  const auto run =
      tessera({"train", "--model_name_or_path", at("base"), "--lora_r", "16", "--load_in_4bit", "--tokenizer_name",
               "byte", "--train_file", at("text.txt"), "--max_steps", "2", "--output_dir", at("adapters")});
  EXPECT_EQ(run.exit_code, 2) << run.err;
  EXPECT_TRUE(contains(run.err, "does not fit: every rank needs ")) << run.err;
  EXPECT_FALSE(path_exists(at("adapters")));
}

TEST_F(MemoryCheckTest, WarnsOrIsSilentWhenAsked) {
  make_folders(at("nowhere"));  // an invalid checkpoint ends the run before the model is created
  const Strings nowhere = {"--resume_from_checkpoint", at("nowhere")};
  const auto warned = tessera(huge(500, nowhere + Strings{"--memory_check", "warn"}));
  EXPECT_EQ(warned.exit_code, 2);
  EXPECT_TRUE(contains(warned.err, "warning: this run may need more memory than is available: it does not fit"))
      << warned.err;
  EXPECT_TRUE(contains(warned.err, "nowhere")) << warned.err;
  const auto silent = tessera(huge(500, nowhere + Strings{"--memory_check", "off"}));
  EXPECT_EQ(silent.exit_code, 2);
  EXPECT_FALSE(contains(silent.err, "does not fit")) << silent.err;
}

TEST_F(MemoryCheckTest, SaysWhatWouldFit) {
  const auto checked = tessera(
      {"plan", "check", "--config_name", "gpt2", "--block_size", "128", "--gpus", "8xCPU/8", "--memory", "3.9"});
  EXPECT_EQ(checked.exit_code, 1) << checked.out << checked.err;
  EXPECT_TRUE(contains(checked.out, "does not fit: every rank needs ")) << checked.out;
  EXPECT_TRUE(contains(checked.out, ": use --")) << checked.out;
}

// When sharding and smaller micro-batches are not enough: smaller optimizer states, and offloaded ones.
TEST_F(MemoryCheckTest, KnowsFewerBytesAndOffload) {
  const auto advice = [](const char* memory, const Strings& more = {}) {
    return tessera(Strings{"plan", "check", "--config_name", "llama-3.2-1b", "--block_size", "128",
                           "--per_device_train_batch_size", "1", "--gpus", "1xCPU/1", "--memory", memory} +
                   more)
        .out;
  };
  EXPECT_TRUE(contains(advice("18"), ": use --bf16_optimizer_states: ")) << advice("18");
  EXPECT_TRUE(contains(advice("17"), ": use --optim adamw_8bit: ")) << advice("17");
  EXPECT_TRUE(contains(advice("13"), ": use --cpu_offload optimizer: ")) << advice("13");
  EXPECT_TRUE(contains(advice("8"), " --cpu_offload all ")) << advice("8");
  EXPECT_FALSE(contains(advice("0.01"), ": use ")) << advice("0.01");
}

TEST_F(MemoryCheckTest, LetsThroughWhatFits) {
  const auto run = tessera(training("out", batch(2, 1, 1)));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_FALSE(contains(run.err, "may need more memory")) << run.err;
}

}  // namespace
}  // namespace tessera::testing
