// Training settings passed to the launcher: accelerate's flags and file, --fsdp, --deepspeed.

#include <gtest/gtest.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/config/accelerate/accelerate_environment.h>
#include <tessera/config/core/fields.h>
#include <tessera/launch/cli/command_line.h>

#include <tests/error_of.h>
#include <tests/paths.h>

#include <algorithm>
#include <cstdlib>
#include <map>

namespace tessera::launch {
namespace {

using Strings = std::vector<std::string>;
using Variables = std::map<std::string, std::string>;

const std::string fixtures = tessera::testing::source_path("tests/fixtures/accelerate/");

/// For all tests of this program: hides the default file of the user who runs them.
class NoDefaultFile : public ::testing::Environment {
 public:
  void SetUp() override { ::setenv("HF_HOME", "/nonexistent", 1); }
};
[[maybe_unused]] const auto* const no_default_file = ::testing::AddGlobalTestEnvironment(new NoDefaultFile);

class TrainingFlagsTest : public ::testing::Test {
 protected:
  TrainingFlagsTest() { ::setenv("HF_HOME", folder_.path().c_str(), 1); }
  ~TrainingFlagsTest() override { ::setenv("HF_HOME", "/nonexistent", 1); }
  std::string at(const std::string& name) const { return path_join(folder_.path(), name); }

  LaunchCommand parse(Strings words) {
    words.push_back("prog");
    return parse_launch_command(words);
  }
  std::string message_of(Strings words) {
    return tessera::testing::error_of([&] { parse(std::move(words)); });
  }
  static Variables variables(const LaunchCommand& command) {
    Variables all;
    for (const std::string& word : command.exports)
      all[word.substr(0, word.find('='))] = word.substr(word.find('=') + 1);
    return all;
  }
  /// The settings a tessera rank derives from its environment, as "name=value", and where each one comes from.
  static std::string settings(const LaunchCommand& command, std::map<std::string, std::string>* origins = nullptr) {
    const Variables all = variables(command);
    config::Problems problems;
    const auto translation = config::read_accelerate_environment(
        [&](const std::string& name) {
          const auto found = all.find(name);
          return found == all.end() ? std::nullopt : std::optional(found->second);
        },
        problems);
    EXPECT_EQ(problems.lines, Strings{});
    Strings parts;
    for (const auto& setting : translation.settings) {
      parts.push_back(concat(setting.name, "=", setting.text));
      if (origins != nullptr) (*origins)[setting.name] = config::file_and_line(setting.where);
    }
    std::sort(parts.begin(), parts.end());
    return join(parts, " ");
  }

 private:
  TemporaryFolder folder_;
};

TEST_F(TrainingFlagsTest, NothingIsSaidWhenNothingIsGiven) {
  const LaunchCommand command = parse({"--num_gpus=4"});
  EXPECT_EQ(command.options.num_processes, 4);
  EXPECT_EQ(command.exports, Strings{});
  EXPECT_EQ(command.notes, Strings{});
}

// The commands of the Hugging Face FSDP guide. (It omits a quotation mark and names a folder.)
TEST_F(TrainingFlagsTest, TheGuidesCommands) {
  make_folders(at("fsdp_config"));
  write_file_atomically(
      at("fsdp_config/fsdp.json"),
      R"({"fsdp_min_num_params": 1e9, "fsdp_transformer_layer_cls_to_wrap": ["LlamaDecoderLayer", "BertLayer"],
                            "fsdp_backward_prefetch": "backward_pre", "fsdp_forward_prefetch": true,
                            "fsdp_limit_all_gathers": true,
                            "fsdp_use_orig_params": true, "fsdp_sync_module_states": true})");
  const LaunchCommand command = parse({"--fsdp=full shard", concat("--fsdp_config=", at("fsdp_config/"))});
  EXPECT_EQ(settings(command),
            "backward_prefetch=backward_pre device=auto forward_prefetch=true limit_all_gathers=true "
            "min_num_params=1000000000 "
            "strategy=FULL_SHARD "
            "sync_module_states=true transformer_layer_cls_to_wrap=LlamaDecoderLayer,BertLayer");
  const Variables all = variables(command);
  EXPECT_EQ(all.at("ACCELERATE_USE_FSDP"), "true");  // for programs in Python
  EXPECT_EQ(all.at("FSDP_SHARDING_STRATEGY"), "FULL_SHARD");
  EXPECT_EQ(all.at("FSDP_MIN_NUM_PARAMS"), "1000000000");
  EXPECT_EQ(all.at("FSDP_TRANSFORMER_CLS_TO_WRAP"), "LlamaDecoderLayer,BertLayer");
  EXPECT_EQ(settings(parse({"--fsdp", "full_shard offload auto_wrap"})),
            "auto_wrap_policy=TRANSFORMER_BASED_WRAP cpu_offload=all device=auto strategy=FULL_SHARD");
}

TEST_F(TrainingFlagsTest, AcceleratesFile) {
  const LaunchCommand command = parse({"--config_file", fixtures + "guide.yaml"});
  EXPECT_EQ(command.options.num_processes, 2);
  std::map<std::string, std::string> origins;
  EXPECT_EQ(settings(command, &origins),
            "auto_wrap_policy=TRANSFORMER_BASED_WRAP backward_prefetch=BACKWARD_PRE bf16=true cpu_offload=all "
            "cpu_ram_efficient_loading=true device=auto "
            "forward_prefetch=false save_state_dict_type=SHARDED_STATE_DICT strategy=1 sync_module_states=true "
            "transformer_layer_cls_to_wrap=BertLayer");
  EXPECT_EQ(origins.at("strategy"), concat(fixtures, "guide.yaml:12"));
  EXPECT_EQ(command.notes, Strings{});
}

TEST_F(TrainingFlagsTest, TypedFlagsBeatTheFile) {
  const LaunchCommand command =
      parse({"--config_file", fixtures + "guide.yaml", "--num_processes", "4", "--mixed_precision", "no",
             "--fsdp-sharding-strategy", "SHARD_GRAD_OP", "--fsdp_offload_params=false", "--main_process_port", "0"});
  EXPECT_EQ(command.options.num_processes, 4);
  std::map<std::string, std::string> origins;
  const std::string all = settings(command, &origins);
  EXPECT_NE(all.find("strategy=SHARD_GRAD_OP"), std::string::npos) << all;
  EXPECT_NE(all.find("cpu_offload=none"), std::string::npos) << all;
  EXPECT_EQ(all.find("bf16"), std::string::npos) << all;
  EXPECT_EQ(origins.at("strategy"), "--fsdp-sharding-strategy");
  const std::string file = fixtures + "guide.yaml";
  EXPECT_EQ(command.notes,
            (Strings{concat("--fsdp_offload_params false overrides ", file, ":11: fsdp_offload_params true"),
                     concat("--fsdp-sharding-strategy SHARD_GRAD_OP overrides ", file, ":12: fsdp_sharding_strategy 1"),
                     concat("--mixed_precision no overrides ", file, ":19: mixed_precision bf16")}));
  EXPECT_EQ(parse({"--config_file", file, "--mixed_precision", "fp16", "--mixed_precision", "bf16"}).notes, Strings{})
      << "the last one says the same as the file";
}

TEST_F(TrainingFlagsTest, TheMachineIsTheFiles) {
  write_file_atomically(
      at("a.yaml"),
      "distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 1\nmain_process_ip: 10.0.0.1\n"
      "main_process_port: 29511\ngpu_ids: 0,1,2,3\nenable_cpu_affinity: true\n");
  const LaunchCommand command = parse({"--config_file", at("a.yaml")});
  EXPECT_EQ(command.options.num_processes, 4);
  EXPECT_EQ(command.options.num_machines, 2);
  EXPECT_EQ(command.options.machine_rank, 1);
  EXPECT_EQ(command.options.master_addr, "10.0.0.1");
  EXPECT_EQ(command.options.master_port, 29511);
  EXPECT_TRUE(command.options.bind_cores);
  EXPECT_EQ(variables(command).at("CUDA_VISIBLE_DEVICES"), "0,1,2,3");
  EXPECT_EQ(settings(command), "device=auto");
  EXPECT_EQ(parse({"--config_file", at("a.yaml"), "--machine_rank", "0", "--export", "CUDA_VISIBLE_DEVICES=7"})
                .options.machine_rank,
            0);
}

TEST_F(TrainingFlagsTest, TheDefaultFileIsUsedAndNamed) {
  make_folders(at("accelerate"));
  const std::string path = at("accelerate/default_config.yaml");
  write_file_atomically(path, "distributed_type: FSDP\nnum_processes: 3\n");
  const LaunchCommand command = parse({});
  EXPECT_EQ(command.options.num_processes, 3);
  EXPECT_EQ(command.notes, Strings{concat("reading settings from ", path,
                                          ", as accelerate launch does (--config_file none ignores it)")});
  EXPECT_EQ(settings(command), "device=auto strategy=full_shard");
  EXPECT_EQ(parse({"--config_file", "none"}).options.num_processes, 1);
  EXPECT_EQ(settings(parse({"--config_file", "none", "--mixed_precision", "bf16"})), "bf16=true");
  EXPECT_EQ(message_of({"--config_file", "none", "--dynamo_backend", "no"}), "");
  EXPECT_EQ(message_of({"--config_file", "none", "--main_training_function", "main"}), "");
  EXPECT_EQ(parse({"--cpu"}).options.num_processes, 1);
  EXPECT_EQ(parse({"--nproc_per_node", "2"}).options.num_processes, 2);
  write_file_atomically(path, "distributed_type: XLA\nnum_processes: 4\n");
  EXPECT_EQ(parse({}).options.num_processes, 1) << "one process drives all devices";
  EXPECT_EQ(settings(parse({})), "device=xla xla_devices=4");
  EXPECT_EQ(settings(parse({"--num_processes", "2"})), "device=xla xla_devices=2");
  write_file_atomically(path, "distributed_type: MULTI_NPU\n");
  const std::string message = message_of({});
  EXPECT_NE(message.find("means accelerators"), std::string::npos) << message;
  EXPECT_NE(message.find("--config_file none ignores it"), std::string::npos) << message;
  EXPECT_EQ(parse({"--secret_from_stdin"}).exports, Strings{});  // an agent started by another tessera agent
}

TEST_F(TrainingFlagsTest, DeepSpeed) {
  write_file_atomically(at("ds.json"), "{\"zero_optimization\": {\"stage\": 2}, /* a comment */ }");
  for (const char* flag : {"--deepspeed", "--deepspeed_config", "--deepspeed_config_file"}) {
    const LaunchCommand command = parse({"--num_gpus=2", flag, at("ds.json")});
    EXPECT_EQ(settings(command), concat("deepspeed=", at("ds.json"), " device=auto"));
    EXPECT_EQ(variables(command).at("ACCELERATE_DEEPSPEED_CONFIG_FILE"), at("ds.json"));
  }
  EXPECT_EQ(settings(parse({"--use_deepspeed", "--zero_stage", "3", "--offload_param_device", "cpu",
                            "--gradient_accumulation_steps=2"})),
            "cpu_offload=params device=auto gradient_accumulation_steps=2 zero_stage=3");
  EXPECT_EQ(
      settings(parse({"--use_deepspeed", "--zero_stage=3", "--offload_optimizer_device=nvme",
                      "--offload_optimizer_nvme_path=/fast"})),
      "cpu_offload=optimizer device=auto offload_folder=/fast zero_stage=3");  // accelerate loses this one on the way
}

TEST_F(TrainingFlagsTest, OtherKinds) {
  EXPECT_EQ(settings(parse({"--mixed_precision=bf16"})), "bf16=true");
  EXPECT_EQ(settings(parse({"--cpu", "--mixed_precision", "bf16"})), "bf16=true device=cpu");
  EXPECT_EQ(settings(parse({"--use_fsdp", "--cpu"})), "device=cpu strategy=full_shard");
  EXPECT_EQ(settings(parse({"--multi_gpu", "-n", "2"})), "device=auto");
  EXPECT_EQ(settings(parse({"--use_megatron_lm", "--megatron_lm_use_distributed_optimizer=true",
                            "--megatron_lm_num_micro_batches", "2"})),
            "device=auto gradient_accumulation_steps=2 strategy=zero1");
  EXPECT_EQ(settings(parse({"--use_megatron_lm", "--megatron_lm_pp_degree=2", "--megatron_lm_num_micro_batches", "4"})),
            "device=auto gradient_accumulation_steps=4 pp_size=2");
  EXPECT_EQ(settings(parse({"--use_fsdp", "-n", "4", "--parallelism_config_dp_replicate_size=2",
                            "--parallelism_config_dp_shard_size=2"})),
            "device=auto shard_group_size=2 strategy=hybrid_shard");
  EXPECT_EQ(parse({"--include", "localhost:1,3"}).options.num_processes, 2);
  EXPECT_EQ(variables(parse({"--include=localhost:1,3"})).at("CUDA_VISIBLE_DEVICES"), "1,3");
}

TEST_F(TrainingFlagsTest, MistakesEndHere) {
  write_file_atomically(at("bad.yaml"),
                        "distributed_type: FSDP\nfsdp_config:\n  fsdp_shardng_strategy: 2\nnum_proceses: 2\n");
  write_file_atomically(at("bad.json"), "{\"zero_optimization\": }");
  make_folders(at("empty"));
  const std::vector<std::pair<Strings, std::string>> cases = {
      {{"--mixed_precision", "bf61"},
       "tessera launch: --mixed_precision: mixed_precision must be one of no, fp16, bf16, fp8, not 'bf61' (did you "
       "mean bf16?)"},
      {{"--use_fsdp", "--fsdp_sharding_strategy", "FULL"},
       "tessera launch: --fsdp_sharding_strategy: fsdp_sharding_strategy is 'FULL'"},
      {{"--use_fsdp", "--fsdp_sharding_strateg", "1"},
       "tessera launch: unknown option --fsdp_sharding_strateg; did you mean --fsdp_sharding_strategy?"},
      {{"--fsdp", "full_shrad"}, "tessera launch: --fsdp: unknown word 'full_shrad'; did you mean full_shard?"},
      {{"--fsdp", "full shrad"}, "tessera launch: --fsdp: unknown word 'full'; did you mean full_shard?"},
      {{"--fsdp", "offload"}, "tessera launch: --fsdp offload contains no strategy: use --fsdp \"full_shard offload\""},
      {{"--fsdp", "full_shard no_shard"},
       "tessera launch: --fsdp full_shard and no_shard are different strategies; keep one of them"},
      {{"--fsdp_config", at("missing.json")},
       concat("--fsdp_config ", at("missing.json"), ": no such file (a JSON object starts with '{')")},
      {{"--fsdp_config", at("empty")},
       concat("--fsdp_config ", at("empty"), " is a folder with 0 .json and .yaml files; specify the file")},
      {{"--config_file", at("bad.yaml")},
       concat("2 problems in the configuration:\n  ", at("bad.yaml"),
              ":4:15: unknown key num_proceses; did you mean num_processes?\n  ", at("bad.yaml"),
              ":3:26: unknown key fsdp_shardng_strategy; did you mean fsdp_sharding_strategy?")},
      {{"--config_file", at("none.yaml")},
       concat("--config_file ", at("none.yaml"), ": no such file; tessera config writes one")},
      {{"--deepspeed", at("missing.json")},
       concat("tessera launch: deepspeed_config_file ", at("missing.json"), ": no such file")},
      {{"--deepspeed", at("bad.json")}, concat("tessera launch: ", at("bad.json"), ":1:")},
      {{"--use_fsdp", "--use_deepspeed"},
       "tessera launch: --use_fsdp and --use_deepspeed select different training modes: remove one of them"},
      {{"--cpu", "--multi_gpu"}, "tessera launch: --cpu and --multi_gpu exclude each other: remove one of them"},
      {{"--fsdp_offload_params", "true"},
       "tessera launch: --fsdp_offload_params needs --use_fsdp (or a --config_file that sets it); as a setting of "
       "tessera train it goes after the program"},
      {{"--gradient_accumulation_steps", "2"},
       "tessera launch: --gradient_accumulation_steps needs --use_deepspeed (or a --config_file that sets it)"},
      {{"--use_fsdp", "-n", "3", "--parallelism_config_tp_size", "2"},
       "tessera launch: --parallelism_config_tp_size: parallelism_config_tp_size 2 is 2 processes, but num_processes "
       "is 3"},
      {{"--use_fsdp", "-n", "3", "--parallelism_config_dp_replicate_size=2", "--parallelism_config_dp_shard_size=2"},
       "tessera launch: --parallelism_config_dp_replicate_size: parallelism_config_dp_replicate_size 2 x "
       "parallelism_config_dp_shard_size 2 are 4 processes, but num_processes is 3"},
      {{"--include", "localhost:a"}, "--include localhost:a: expected device numbers, such as localhost:0,1"},
      {{"--include", "localhost:1", "-n", "2"}, "--include localhost:1 already sets the number of ranks"},
  };
  for (const auto& [words, message] : cases)
    EXPECT_EQ(message_of(words).substr(0, message.size()), message) << join(words, " ") << "\n" << message_of(words);
}

// A job file contains all settings, and the default file on the machine it runs on is ignored.
TEST_F(TrainingFlagsTest, JobFilesCarryTheSettings) {
  const LaunchCommand command =
      parse({"--emit", "slurm", "--use_fsdp", "--num_machines", "2", "--nproc_per_node", "2"});
  const std::string script = emit_slurm({command.options, command.command, command.emission, "", command.exports});
  EXPECT_NE(script.find("--export ACCELERATE_USE_FSDP=true"), std::string::npos) << script;
  EXPECT_NE(script.find("--config_file none"), std::string::npos) << script;
}

}  // namespace
}  // namespace tessera::launch
