// The variables that `accelerate launch` sets for a file (recorded from real runs, tests/fixtures/accelerate), and how
// they are read.

#include "accelerate_under_test.h"

#include <tessera/base/file.h>
#include <tessera/config/accelerate/accelerate_environment.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/core/run_config.h>
#include <tests/paths.h>

#include <algorithm>
#include <set>

namespace tessera::config {
namespace {

using testing::Read;
using testing::Words;
using Variables = std::map<std::string, std::string>;

const std::string fixtures = tessera::testing::source_path("tests/fixtures/accelerate/");
const Words names = {"deepspeed_fields", "deepspeed_file", "fsdp1",    "fsdp2",     "guide",
                     "hybrid",           "least",          "megatron", "multi_gpu", "no"};

Variables recorded(const std::string& name) {
  Variables variables;
  for (const std::string& line : split(read_file(fixtures + name + ".env"), '\n'))
    if (!line.empty()) variables[line.substr(0, line.find('='))] = line.substr(line.find('=') + 1);
  return variables;
}

Read read_environment(const Variables& variables) {
  Problems problems;
  const Translation translation = read_accelerate_environment(
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      problems);
  return testing::read_of(translation, problems);
}

/// Settings by their meaning, not their spelling, without those that belong to the launcher or equal the default.
Variables meaning(const Translation& translation) {
  RunConfig config;
  Variables meant;
  for (const FileSetting& setting : translation.settings) {
    const Field* field = find_field(setting.name);
    const std::string before = dump_json(field->get(config));
    EXPECT_EQ(field->set(config, setting.text), std::nullopt);
    if (setting.name != "num_processes" && dump_json(field->get(config)) != before)
      meant[setting.name] = dump_json(field->get(config));
  }
  return meant;
}

TEST(AccelerateEnvironment, WrittenAsAccelerateWritesIt) {
  for (const std::string& name : names) {
    Variables expected = recorded(name), written;
    for (const auto& [variable, value] : accelerate_variables(load_accelerate_file(fixtures + name + ".yaml")))
      written[variable] = value;
    if (name == "guide")
      expected["FSDP_BACKWARD_PREFETCH"] = "BACKWARD_PRE";  // accelerate never reads the guide's name
    EXPECT_EQ(written, expected) << name;
  }
}

// A file and its variables have the same meaning, with two exceptions: accelerate sets some variables that the file
// does not mention (no forward prefetch), and no variable selects GPUs.
TEST(AccelerateEnvironment, FileAndVariablesMeanTheSame) {
  for (const std::string& name : names) {
    Problems problems;
    auto from_file = meaning(read_accelerate_file(fixtures + name + ".yaml", problems));
    const Value file = load_accelerate_file(fixtures + name + ".yaml");
    if (const Value* cpu = file.find("use_cpu"); cpu == nullptr || means_no(*cpu)) from_file.erase("device");
    // A relative path is also looked up next to the file; a variable has no file.
    if (auto found = from_file.find("deepspeed"); found != from_file.end() && name == "deepspeed_file") {
      EXPECT_TRUE(found->second.ends_with("/ds.json\"")) << found->second;
      found->second = "\"ds.json\"";
    }
    const Variables variables = recorded(name);
    auto from_variables = meaning(read_accelerate_environment(
        [&](const std::string& variable) {
          const auto found = variables.find(variable);
          return found == variables.end() ? std::nullopt : std::optional(found->second);
        },
        problems));
    if (!from_file.contains("forward_prefetch")) from_variables.erase("forward_prefetch");
    EXPECT_EQ(problems.lines, Words{}) << name;
    EXPECT_EQ(from_variables, from_file) << name;
  }
}

struct Case {
  Variables variables;
  std::string settings;
  Words notes = {};
};

TEST(AccelerateEnvironment, WhatVariablesBecome) {
  const std::vector<Case> cases = {
      {{}, ""},
      {{{"ACCELERATE_MIXED_PRECISION", "no"}}, ""},
      {{{"ACCELERATE_MIXED_PRECISION", "bf16"}}, "bf16=true"},
      {{{"ACCELERATE_USE_CPU", "True"}, {"ACCELERATE_MIXED_PRECISION", "fp16"}}, "device=cpu fp16=true"},
      {{{"ACCELERATE_USE_CPU", "False"}}, ""},
      {{{"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"}}, "gradient_accumulation_steps=4"},
      {{{"ACCELERATE_USE_FSDP", "true"}}, "strategy=full_shard"},
      {{{"ACCELERATE_USE_FSDP", "1"}, {"FSDP_SHARDING_STRATEGY", "HYBRID_SHARD"}, {"FSDP_VERSION", "1"}},
       "strategy=HYBRID_SHARD"},
      {{{"ACCELERATE_USE_FSDP", "true"},
        {"FSDP_SHARDING_STRATEGY", "FULL_SHARD"},
        {"FSDP_RESHARD_AFTER_FORWARD", "shard_grad_op"}},
       "strategy=shard_grad_op"},
      {{{"ACCELERATE_USE_FSDP", "true"},
        {"FSDP_VERSION", "2"},
        {"FSDP_SHARDING_STRATEGY", "FULL_SHARD"},
        {"FSDP_RESHARD_AFTER_FORWARD", "false"}},
       "reshard_after_forward=false strategy=full_shard"},
      {{{"ACCELERATE_USE_FSDP", "true"}, {"FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD", "true"}},
       "strategy=full_shard",
       {"environment FSDP_ACTIVATION_CHECKPOINTING_OFFLOAD: fsdp_activation_checkpointing_offload has no effect: "
        "gradient_checkpointing_kwargs "
        "offload_inputs_to=DIR moves the blocks' inputs out of memory"}},
      {{{"FSDP_SHARDING_STRATEGY", "FULL_SHARD"}},
       "",
       {"environment FSDP_SHARDING_STRATEGY: has no effect without ACCELERATE_USE_FSDP=true"}},
      {{{"ACCELERATE_USE_DEEPSPEED", "true"}}, "zero_stage=2"},
      {{{"ACCELERATE_USE_DEEPSPEED", "true"}, {"ACCELERATE_DEEPSPEED_CONFIG_FILE", "ds.json"}}, "deepspeed=ds.json"},
      {{{"ACCELERATE_USE_DEEPSPEED", "true"},
        {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "3"},
        {"ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE", "cpu"},
        {"ACCELERATE_GRADIENT_CLIPPING", "none"},
        {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "auto"}},
       "cpu_offload=params zero_stage=3"},
      {{{"ACCELERATE_USE_MEGATRON_LM", "true"},
        {"MEGATRON_LM_GRADIENT_CLIPPING", "1.0"},
        {"MEGATRON_LM_TP_DEGREE", "1"},
        {"MEGATRON_LM_USE_DISTRIBUTED_OPTIMIZER", "True"}},
       "strategy=zero1"},
      {{{"ACCELERATE_USE_MEGATRON_LM", "true"}, {"MEGATRON_LM_PP_DEGREE", "2"}, {"MEGATRON_LM_NUM_MICRO_BATCHES", "4"}},
       "gradient_accumulation_steps=4 pp_size=2"},
      {{{"ACCELERATE_DYNAMO_BACKEND", "INDUCTOR"}},
       "",
       {"environment ACCELERATE_DYNAMO_BACKEND: dynamo_config has no effect: models are compiled ahead of time here"}},
      {{{"ACCELERATE_DYNAMO_BACKEND", "NO"}, {"ACCELERATE_DYNAMO_MODE", "default"}}, ""},
  };
  for (const Case& c : cases) {
    const Read read = read_environment(c.variables);
    EXPECT_EQ(read.settings_text(), c.settings);
    EXPECT_EQ(read.notes, c.notes);
    EXPECT_EQ(read.problems, Words{});
  }
}

TEST(AccelerateEnvironment, Mistakes) {
  const std::vector<std::pair<Variables, Words>> cases = {
      {{{"ACCELERATE_USE_FSDP", "true"}, {"ACCELERATE_USE_DEEPSPEED", "true"}},
       {"environment ACCELERATE_USE_FSDP and ACCELERATE_USE_DEEPSPEED are both on, but they exclude each other; unset "
        "one of them"}},
      {{{"ACCELERATE_MIXED_PRECISION", "fp8"}, {"ACCELERATE_FP8_BACKEND", "MSAMP"}},
       {"environment ACCELERATE_FP8_BACKEND: backend MSAMP, with 8-bit gradients and optimizer states, is not "
        "implemented: use TE or AO, which run linear layers in fp8"}},
      {{{"ACCELERATE_USE_FSDP", "true"}, {"FSDP_VERSION", "3"}},
       {"environment FSDP_VERSION: fsdp_version must be 1 or 2 (one engine implements both)"}},
      {{{"ACCELERATE_USE_MEGATRON_LM", "true"}, {"MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE", "0"}},
       {"environment MEGATRON_LM_EXPERT_TENSOR_PARALLEL_SIZE: megatron_lm_expert_tensor_parallel_size must be a whole "
        "number from 1 to 4096, not '0'"}},
      {{{"ACCELERATE_USE_PARALLELISM_CONFIG", "true"},
        {"PARALLELISM_CONFIG_CP_SIZE", "2"},
        {"PARALLELISM_CONFIG_CP_COMM_STRATEGY", "ring"}},
       {"environment PARALLELISM_CONFIG_CP_COMM_STRATEGY: parallelism_config_cp_comm_strategy must be one of "
        "allgather, alltoall, not 'ring'"}},
      {{{"ACCELERATE_USE_DEEPSPEED", "true"}, {"ACCELERATE_DEEPSPEED_ZERO_STAGE", "5"}},
       {"environment ACCELERATE_DEEPSPEED_ZERO_STAGE: zero_stage must be a whole number from 0 to 3, not '5'"}},
      {{{"ACCELERATE_USE_MEGATRON_LM", "true"},
        {"MEGATRON_LM_NUM_MICRO_BATCHES", "2"},
        {"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "4"}},
       {"environment ACCELERATE_GRADIENT_ACCUMULATION_STEPS: ACCELERATE_GRADIENT_ACCUMULATION_STEPS 4 contradicts "
        "megatron_lm_num_micro_batches 2 (environment MEGATRON_LM_NUM_MICRO_BATCHES); keep one of them"}},
      {{{"ACCELERATE_GRADIENT_ACCUMULATION_STEPS", "0"}},
       {"environment ACCELERATE_GRADIENT_ACCUMULATION_STEPS: ACCELERATE_GRADIENT_ACCUMULATION_STEPS is 0; it must be "
        "at least 1"}},
  };
  for (const auto& [variables, problems] : cases) EXPECT_EQ(read_environment(variables).problems, problems);
}

// A default that accelerate writes is not the user's choice: it must not override a file.
TEST(AccelerateEnvironment, DefaultsSayNothing) {
  const Read read = read_environment(recorded("least"));
  EXPECT_EQ(read.settings_text(), "forward_prefetch=false strategy=FULL_SHARD");
  EXPECT_EQ(read.notes, Words{});
}

TEST(AccelerateEnvironment, WhatIsPackedForRanksIsText) {
  const Value escaped = parse_yaml("distributed_type: NO\ntpu_name: \"a\\xA0\"\n", "a.yaml");
  try {
    EXPECT_TRUE(is_utf8(packed_accelerate(escaped)));
  } catch (const InputError& error) {
    EXPECT_STREQ(error.what(), "a.yaml:1: some text is not UTF-8; write it without escapes");
  }
}

TEST(AccelerateEnvironment, OriginsAreVariables) {
  Problems problems;
  const Variables variables = recorded("guide");
  const Translation translation = read_accelerate_environment(
      [&](const std::string& name) {
        const auto found = variables.find(name);
        return found == variables.end() ? std::nullopt : std::optional(found->second);
      },
      problems);
  for (const FileSetting& setting : translation.settings)
    if (setting.name == "strategy") {
      EXPECT_EQ(file_and_line(setting.where), "environment FSDP_SHARDING_STRATEGY");
    }
}

}  // namespace
}  // namespace tessera::config
