// The commands of the Hugging Face FSDP guide with `tessera` in place of `accelerate`: a config file, `launch`, `launch
// --fsdp="full shard" --fsdp_config=...`, and BERT wrapped by its layers.

#include "program.h"

namespace tessera::testing {
namespace {

class LaunchTrainingTest : public ToolTest {
 protected:
  LaunchTrainingTest() {
    make_folders(at("home/accelerate"));
    make_folders(at("bert"));
    make_folders(at("path/to/fsdp_config"));
    // A small BERT with a vocabulary from the text.
    const Strings words = {"[PAD]", "[UNK]", "[CLS]", "[SEP]",  "[MASK]", "the", "small", "stones", "of",
                           "row",   "form",  "a",     "mosaic", ".",      "0",   "1",     "2",      "3",
                           "4",     "5",     "6",     "7",      "8",      "9",   "10"};
    write_file_atomically(at("bert/vocab.txt"), join(words, "\n") + "\n");
    write_file_atomically(
        at("bert/config.json"),
        concat(R"({"architectures": ["BertForMaskedLM"], "model_type": "bert", "vocab_size": )", words.size(),
               R"(, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
            "max_position_embeddings": 64, "type_vocab_size": 2, "hidden_act": "gelu", "hidden_dropout_prob": 0.0,
            "attention_probs_dropout_prob": 0.0, "layer_norm_eps": 1e-12,
            "initializer_range": 0.02, "pad_token_id": 0})"));
  }

  launch::Environment home() const { return {{"HF_HOME", at("home")}}; }

  /// `tessera train` of BERT, as the program's words after a launcher's flags.
  Strings bert(const std::string& output) const {
    return {program,
            "train",
            "--config_name",
            at("bert"),
            "--tokenizer_name",
            at("bert"),
            "--train_file",
            at("text.txt"),
            "--block_size",
            "32",
            "--max_steps",
            "3",
            "--logging_steps",
            "1",
            "--learning_rate",
            "1e-2",
            "--per_device_train_batch_size",
            "4",
            "--save_strategy",
            "no",
            "--output_dir",
            at(output)};
  }
  Strings gpt2(const std::string& output, const Strings& more = {}) const {
    return Strings{program} +
           training(output,
                    Strings{"--max_steps", "3", "--per_device_train_batch_size", "2", "--save_strategy", "no"} + more);
  }
  Strings losses(const std::string& output) const {
    Strings all;
    for (const auto& [step, loss] : curve(output)) all.push_back(concat(step, " ", format_real(loss)));
    return all;
  }
};

constexpr const char* guide =
    "compute_environment: LOCAL_MACHINE\ndebug: false\ndistributed_type: FSDP\ndowncast_bf16: \"no\"\nfsdp_config:\n"
    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n  fsdp_backward_prefetch_policy: BACKWARD_PRE\n  "
    "fsdp_cpu_ram_efficient_loading: true\n"
    "  fsdp_forward_prefetch: false\n  fsdp_offload_params: true\n  fsdp_sharding_strategy: 1\n  fsdp_state_dict_type: "
    "SHARDED_STATE_DICT\n"
    "  fsdp_sync_module_states: true\n  fsdp_transformer_layer_cls_to_wrap: BertLayer\n  fsdp_use_orig_params: "
    "true\nmachine_rank: 0\n"
    "main_training_function: main\nmixed_precision: bf16\nnum_machines: 1\nnum_processes: 2\nrdzv_backend: "
    "static\nsame_network: true\n"
    "tpu_env: []\ntpu_use_cluster: false\ntpu_use_sudo: false\nuse_cpu: false\n";

// accelerate launch my-trainer-script.py: the file written by the questionnaire is found by default.
TEST_F(LaunchTrainingTest, TheGuidesFileAndBert) {
  write_file_atomically(at("home/accelerate/default_config.yaml"), guide);
  const auto run = tessera(Strings{"launch"} + bert("out"), home());
  ASSERT_EQ(run.exit_code, 0) << run.err << run.out;
  EXPECT_TRUE(contains(run.err, "reading settings from " + at("home/accelerate/default_config.yaml"))) << run.err;
  EXPECT_EQ(losses("out").size(), 3u);
  const Value report = end_line("out");
  EXPECT_EQ(report.at("event").as_string(), "end");
  const auto shown = tessera(Strings{"train", "--config_file", at("home/accelerate/default_config.yaml"),
                                     "--print_config", "--output_dir", at("o")},
                             home());
  const Value sharding = parse_json(shown.out, "shown").at("sharding");
  EXPECT_EQ(sharding.at("strategy").at("value").as_string(), "full_shard");
  EXPECT_EQ(sharding.at("transformer_layer_cls_to_wrap").at("value").as_string(), "BertLayer");
  EXPECT_EQ(sharding.at("cpu_offload").at("value").as_string(), "all");
}

// accelerate launch --fsdp="full shard" --fsdp_config="path/to/fsdp_config/" my-trainer-script.py
TEST_F(LaunchTrainingTest, FsdpInWords) {
  write_file_atomically(at("path/to/fsdp_config/config.json"),
                        R"({"fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer", "BertLayer"],
                            "fsdp_forward_prefetch": true})");
  const auto run = tessera(
      Strings{"launch", "--num_processes=2", "--fsdp=full shard", "--fsdp_config=" + at("path/to/fsdp_config/")} +
          bert("out"),
      home());
  ASSERT_EQ(run.exit_code, 0) << run.err << run.out;
  const auto whole = tessera(Strings{"launch", "--num_processes=2"} + bert("whole"), home());
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const auto divided = curve("out"), together = curve("whole");
  ASSERT_EQ(divided.size(), 3u);
  for (const auto& [step, loss] : together) EXPECT_NEAR(divided.at(step), loss, 1e-5 * loss) << step;
  EXPECT_TRUE(contains(run.err, "no module of class 'LlamaDecoderLayer' to wrap; the others are wrapped")) << run.err;

  // Only a class the model does not have, in a folder given with --fsdp_config.
  write_file_atomically(at("path/to/fsdp_config/config.json"),
                        R"({"fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer"]})");
  Strings words = bert("none") + Strings{"--fsdp", "full_shard", "--fsdp_config", at("path/to/fsdp_config/")};
  words.erase(words.begin());
  const auto none = tessera(words + Strings{"--num_processes", "2"}, home());
  EXPECT_EQ(none.exit_code, 2) << none.err;
  EXPECT_TRUE(contains(none.err, "config.json:1) LlamaDecoderLayer: a model of type \"bert\" has no such module") &&
              contains(none.err, "remove it, and the model's own blocks are wrapped"))
      << none.err;
}

// Flags before or after the program: the same run, bit for bit.
TEST_F(LaunchTrainingTest, BeforeOrAfterTheProgram) {
  write_file_atomically(
      at("a.yaml"),
      "distributed_type: FSDP\nnum_processes: 2\nfsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"
      "  fsdp_transformer_layer_cls_to_wrap: GPT2Block\n");
  const auto before = tessera(Strings{"launch", "--config_file", at("a.yaml")} + gpt2("before"), home());
  ASSERT_EQ(before.exit_code, 0) << before.err;
  Strings words = gpt2("after", {"--config_file", at("a.yaml")});
  words.erase(words.begin());
  const auto after = tessera(words, home());
  ASSERT_EQ(after.exit_code, 0) << after.err;
  EXPECT_EQ(losses("before"), losses("after"));
  EXPECT_EQ(losses("before").size(), 3u);
}

// DeepSpeed's keys are also checked when the program is tessera's own: one message, from the launcher.
TEST_F(LaunchTrainingTest, DeepspeedsFileIsCheckedWithTheTrainingsFlags) {
  write_file_atomically(at("ds.json"), "{\"train_batch_size\": 6,\n \"zero_optimization\": {\"stge\": 2}}\n");
  for (const Strings& before : {Strings{"--use_deepspeed", "--deepspeed_config_file", at("ds.json")}, Strings{}}) {
    const Strings after = before.empty() ? Strings{"--deepspeed", at("ds.json")} : Strings{};
    const auto run = tessera(Strings{"launch", "--num_processes=2"} + before + gpt2("out", after), home());
    EXPECT_EQ(run.exit_code, 2);
    EXPECT_TRUE(contains(run.err, "ds.json:2:32: unknown key zero_optimization.stge; did you mean stage?")) << run.err;
    EXPECT_TRUE(contains(run.err, "train_batch_size is not equal to micro_batch_per_gpu")) << run.err;
    EXPECT_FALSE(contains(run.err, "[rank")) << run.err;
    EXPECT_FALSE(path_exists(at("out")));
  }
}

TEST_F(LaunchTrainingTest, WrongWordsEndBeforeAnythingStarts) {
  const auto run = tessera(Strings{"launch", "--num_processes=2", "--fsdp=full shrad"} + gpt2("out"), home());
  EXPECT_EQ(run.exit_code, 2);
  EXPECT_TRUE(contains(run.err, "--fsdp: unknown word 'full'; did you mean full_shard?")) << run.err;
  EXPECT_FALSE(path_exists(at("out")));
}

// Variables set by a pod or a shell do not belong to this job: RANK and WORLD_SIZE of one process do not conflict with
// two.
TEST_F(LaunchTrainingTest, VariablesLeftInTheEnvironment) {
  const auto left = [](const char* world) -> launch::Environment {
    return {{"RANK", "0"}, {"WORLD_SIZE", world}, {"MASTER_ADDR", "127.0.0.1"}, {"MASTER_PORT", "29577"}};
  };
  const Strings two = training("two", batch(1, 1, 1) + Strings{"--save_strategy", "no", "--num_processes", "2"});
  const auto started = tessera(two, left("1"));
  ASSERT_EQ(started.exit_code, 0) << started.err;
  EXPECT_TRUE(contains(started.err, "RANK=0, WORLD_SIZE=1 are in the environment")) << started.err;
  EXPECT_TRUE(contains(started.err, "2 processes")) << started.err;

  const auto refused = tessera(training("three", batch(1, 1, 1) + Strings{"--num_processes", "3"}), left("2"));
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_TRUE(contains(refused.err,
                       "--num_processes is 3 but RANK=0, WORLD_SIZE=2 in the environment make this one of "
                       "2 processes: unset RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT"))
      << refused.err;
}

}  // namespace
}  // namespace tessera::testing
