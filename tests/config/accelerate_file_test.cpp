// accelerate's YAML: the setting that each key becomes, the notes about keys without a counterpart, and every possible
// mistake.

#include "accelerate_under_test.h"

#include <rapidcheck/gtest.h>
#include <tessera/base/file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>
#include <tests/paths.h>

#include <set>

namespace tessera::config {
namespace {

using testing::Read;
using testing::read_yaml_text;
using testing::Words;

constexpr const char* fsdp = "distributed_type: FSDP\nnum_processes: 2\n";
constexpr const char* deepspeed = "distributed_type: DEEPSPEED\nnum_processes: 2\n";
constexpr const char* megatron = "distributed_type: MEGATRON_LM\nnum_processes: 2\n";

struct Case {
  std::string yaml;
  std::string settings;  ///< "name=text ...", sorted by name
  Words notes = {};
};

void expect_settings(const std::vector<Case>& cases) {
  for (const Case& c : cases) {
    Read read = read_yaml_text(c.yaml);
    if (c.settings.find("device=") == std::string::npos) read.settings.erase("device");  // see TheMachine
    EXPECT_EQ(read.settings_text(), c.settings) << c.yaml;
    EXPECT_EQ(read.notes, c.notes) << c.yaml;
    EXPECT_EQ(read.problems, Words{}) << c.yaml;
  }
}

void expect_problems(const std::vector<std::pair<std::string, Words>>& cases) {
  for (const auto& [yaml, problems] : cases) EXPECT_EQ(read_yaml_text(yaml).problems, problems) << yaml;
}

std::string in(const char* type, const std::string& section, const std::string& lines) {
  std::string text = concat(type, section, ":\n");
  for (const std::string& line : split(lines, '\n')) text += concat("  ", line, "\n");
  return text;
}

TEST(AccelerateFile, TheMachine) {
  expect_settings({
      {"distributed_type: 'NO'\n", "device=auto"},
      {"distributed_type: NO\nnum_processes: 1\n", "device=auto num_processes=1"},
      {"distributed_type: FSDP\n", "device=auto strategy=full_shard"},
      {"distributed_type: FSDP\nuse_cpu: true\n", "device=cpu strategy=full_shard"},
      {"distributed_type: DEEPSPEED\nuse_cpu: false\n", "device=auto zero_stage=2"},
      {"distributed_type: MEGATRON_LM\n", "device=auto"},
      {"distributed_type: MULTI_CPU\n", ""},
      {"distributed_type: no\n", ""},
      {"distributed_type: false\n", ""},
      {"distributed_type: MULTI_CPU\nnum_processes: 4\nuse_cpu: true\n", "device=cpu num_processes=4"},
      {"distributed_type: multi_gpu\nnum_processes: 2\nmain_process_port: 29501\n",
       "device=auto main_process_port=29501 num_processes=2"},
      {"distributed_type: MULTI_GPU\nuse_cpu: true\n", "device=cpu"},
      {"distributed_type: MULTI_GPU\nnum_processes: -1\nmain_process_port: null\n", "device=auto"},
      {"distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 1\nmain_process_ip: "
       "node0\nmain_process_port: 29500\n",
       "device=auto main_process_port=29500",
       {"a.yaml:3: num_machines 2 is for the launcher: run tessera launch --config_file on each machine; otherwise one "
        "machine trains alone"}},
      {"distributed_type: NO\nuse_cpu: no\ndebug: 'no'\ndowncast_bf16: 'no'\ntpu_env: []\ntpu_use_sudo: "
       "false\nmain_training_function: main\n"
       "rdzv_backend: static\nsame_network: true\ngpu_ids: all\ncommands: null\n",
       ""},
  });
}

TEST(AccelerateFile, WhatHasNoPlaceHereIsNamed) {
  expect_settings({
      {"distributed_type: NO\ndebug: true\n",
       "",
       {"a.yaml:2: debug has no effect: the shapes of all collectives are always compared"}},
      {"distributed_type: NO\ntpu_name: t\ndowncast_bf16: 'yes'\n",
       "",
       {"a.yaml:2: tpu_name has no effect: accelerate uses it to reach TPU machines: start the training on the TPUs' "
        "host (docs/tpu.md)",
        "a.yaml:3: downcast_bf16 has no effect: mixed_precision: bf16 computes in bfloat16, and weights stay fp32"}},
      {"distributed_type: NO\nnum_processes: 8\n",
       "",
       {"a.yaml:2: num_processes 8 has no effect: distributed_type NO is one process (MULTI_CPU, MULTI_GPU, FSDP are "
        "several)"}},
      {"distributed_type: NO\nipex_config:\n  ipex: true\ntp_config:\n  tp_size: 2\n",
       "",
       {"a.yaml:2: ipex_config has no effect: models are compiled ahead of time here",
        "a.yaml:4: tp_config has no effect: accelerate does not read it; parallelism_config_tp_size of "
        "parallelism_config sets tensor parallelism"}},
      {"distributed_type: NO\nrdzv_backend: etcd\n",
       "",
       {"a.yaml:2: rdzv_backend has no effect: the agents use their own store"}},
      {"distributed_type: NO\ndynamo_config:\n  dynamo_backend: INDUCTOR\n",
       "",
       {"a.yaml:2: dynamo_config has no effect: models are compiled ahead of time here"}},
      {"distributed_type: NO\ndynamo_config:\n  dynamo_backend: 'NO'\n", ""},
      {"distributed_type: NO\ndynamo_backend: INDUCTOR\n",
       "",
       {"a.yaml:2: dynamo_backend has no effect: models are compiled ahead of time here"}},
      {"distributed_type: NO\ndynamo_backend: 'NO'\n", ""},
      {"distributed_type: NO\nfp8_config:\n  backend: TE\n",
       "",
       {"a.yaml:2: fp8_config has no effect: mixed_precision is not fp8"}},
      {"distributed_type: MULTI_CPU\nmpirun_config:\n  mpirun_hostfile: hosts\n",
       "",
       {"a.yaml:2: mpirun_config has no effect: start the program with mpirun itself, or with tessera launch "
        "--hostfile"}},
      {"distributed_type: MULTI_GPU\nfsdp_config:\n  fsdp_sharding_strategy: 2\n",
       "device=auto",
       {"a.yaml:2: fsdp_config has no effect: distributed_type is MULTI_GPU"}},
      {"distributed_type: NO\ndeepspeed_config:\n  zero_stage: 2\nmegatron_lm_config: {}\n",
       "",
       {"a.yaml:2: deepspeed_config has no effect: distributed_type is NO"}},
  });
}

TEST(AccelerateFile, MixedPrecisionInAllSpellings) {
  for (const char* no : {"no", "NO", "'no'", "false", "\"No\"", "null", "None"})
    expect_settings({{concat("distributed_type: NO\nmixed_precision: ", no, "\n"), ""}});
  expect_settings({
      {"distributed_type: NO\nmixed_precision: bf16\n", "bf16=true"},
      {"distributed_type: NO\nmixed_precision: FP16\n", "fp16=true"},
      {"distributed_type: NO\nfp16: true\n", "fp16=true"},
      {"distributed_type: NO\nfp16: false\n", ""},
      {"distributed_type: NO\nfp16: true\nmixed_precision: fp16\n", "fp16=true"},
  });
}

TEST(AccelerateFile, Fsdp) {
  expect_settings({
      {fsdp, "num_processes=2 strategy=full_shard"},
      {in(fsdp, "fsdp_config", "fsdp_sharding_strategy: SHARD_GRAD_OP"), "num_processes=2 strategy=SHARD_GRAD_OP"},
      {in(fsdp, "fsdp_config", "sharding_strategy: 2"), "num_processes=2 strategy=2"},
      {in(fsdp, "fsdp_config", "fsdp_reshard_after_forward: SHARD_GRAD_OP"), "num_processes=2 strategy=SHARD_GRAD_OP"},
      {in(fsdp, "fsdp_config", "fsdp_version: 2\nfsdp_reshard_after_forward: false"),
       "num_processes=2 reshard_after_forward=false strategy=full_shard"},
      {in(fsdp, "fsdp_config", "fsdp_min_num_params: 1e8\nfsdp_auto_wrap_policy: SIZE_BASED_WRAP"),
       "auto_wrap_policy=SIZE_BASED_WRAP min_num_params=100000000 num_processes=2 strategy=full_shard"},
      {in(fsdp, "fsdp_config", "fsdp_transformer_layer_cls_to_wrap: [BertLayer, GPT2Block]"),
       "num_processes=2 strategy=full_shard transformer_layer_cls_to_wrap=BertLayer,GPT2Block"},
      {in(fsdp, "fsdp_config",
          "fsdp_backward_prefetch_policy: BACKWARD_PRE\nfsdp_wrap_policy: SIZE_BASED_WRAP\nmin_num_param: 5"),
       "auto_wrap_policy=SIZE_BASED_WRAP backward_prefetch=BACKWARD_PRE min_num_params=5 num_processes=2 "
       "strategy=full_shard"},
      {in(fsdp, "fsdp_config",
          "fsdp_offload_params: true\nfsdp_activation_checkpointing: true\nfsdp_ignored_modules: h\\.0.*"),
       "cpu_offload=all gradient_checkpointing=true ignored_modules=h\\.0.* num_processes=2 strategy=full_shard"},
      {in(fsdp, "fsdp_config", "fsdp_activation_checkpointing_offload: true"),
       "num_processes=2 strategy=full_shard",
       {"a.yaml:4: fsdp_activation_checkpointing_offload has no effect: gradient_checkpointing_kwargs "
        "offload_inputs_to=DIR moves the blocks' inputs out of memory"}},
      {in(fsdp, "fsdp_config", "fsdp_activation_checkpointing_offload: false"), "num_processes=2 strategy=full_shard"},
  });
}

// The file of the Hugging Face FSDP guide, verbatim.
TEST(AccelerateFile, TheGuidesFile) {
  Problems problems;
  const std::string path = tessera::testing::source_path("tests/fixtures/accelerate/guide.yaml");
  const Read read = testing::read_of(read_accelerate_file(path, problems), problems);
  EXPECT_EQ(read.problems, Words{});
  EXPECT_EQ(read.settings_text(),
            "auto_wrap_policy=TRANSFORMER_BASED_WRAP backward_prefetch=BACKWARD_PRE bf16=true cpu_offload=all "
            "cpu_ram_efficient_loading=true device=auto "
            "forward_prefetch=false num_processes=2 save_state_dict_type=SHARDED_STATE_DICT strategy=1 "
            "sync_module_states=true "
            "transformer_layer_cls_to_wrap=BertLayer");
}

TEST(AccelerateFile, DeepSpeedFields) {
  expect_settings({
      {deepspeed, "num_processes=2 zero_stage=2"},
      {in(deepspeed, "deepspeed_config", "zero_stage: 3\ngradient_accumulation_steps: 4\ngradient_clipping: 0.5"),
       "gradient_accumulation_steps=4 max_grad_norm=0.5 num_processes=2 zero_stage=3"},
      {in(deepspeed, "deepspeed_config", "zero_stage: 3\ngradient_accumulation_steps: auto\ngradient_clipping: 'auto'"),
       "num_processes=2 zero_stage=3"},
      {in(deepspeed, "deepspeed_config", "zero_stage: 3\noffload_optimizer_device: cpu\noffload_param_device: none"),
       "cpu_offload=optimizer num_processes=2 zero_stage=3"},
      {in(deepspeed, "deepspeed_config", "zero_stage: 3\noffload_optimizer_device: cpu\noffload_param_device: CPU"),
       "cpu_offload=all num_processes=2 zero_stage=3"},
      {in(deepspeed, "deepspeed_config", "zero_stage: 3\noffload_param_device: nvme\noffload_param_nvme_path: /fast"),
       "cpu_offload=params num_processes=2 offload_folder=/fast zero_stage=3"},
      {in(deepspeed, "deepspeed_config", "zero_stage: 2\noffload_param_device: cpu"),
       "num_processes=2 zero_stage=2",
       {"a.yaml:5: offload_param_device has no effect: zero_stage 2 does not shard parameters; zero_stage 3 does"}},
      {in(deepspeed, "deepspeed_config", "zero_stage: 1\noffload_optimizer_nvme_path: /x"),
       "num_processes=2 zero_stage=1",
       {"a.yaml:5: offload_optimizer_nvme_path has no effect: the device is not nvme"}},
      {in(deepspeed, "deepspeed_config", "deepspeed_config_file: ds.json\nzero3_init_flag: false"),
       "deepspeed=ds.json num_processes=2"},
      {in(deepspeed, "deepspeed_config", "zero_stage: 3\nzero3_init_flag: true\nzero3_save_16bit_model: true"),
       "num_processes=2 zero_stage=3",
       {"a.yaml:5: zero3_init_flag has no effect: weights are read or initialized directly into their shards",
        "a.yaml:6: zero3_save_16bit_model has no effect: full weights are always saved, in the model's own precision"}},
      {in(deepspeed, "deepspeed_config", "deepspeed_multinode_launcher: pdsh\ndeepspeed_hostfile: hosts"),
       "num_processes=2 zero_stage=2",
       {"a.yaml:4: deepspeed_multinode_launcher has no effect: tessera launch starts its agents with ssh, or runs "
        "under Slurm and mpirun",
        "a.yaml:5: deepspeed_hostfile has no effect: it is for the launcher: tessera launch --config_file reads it"}},
  });
}

TEST(AccelerateFile, MegatronLm) {
  expect_settings({
      {megatron, "num_processes=2"},
      {in(megatron, "megatron_lm_config",
          "megatron_lm_tp_degree: 1\nmegatron_lm_pp_degree: 1\nmegatron_lm_num_micro_batches: "
          "4\nmegatron_lm_gradient_clipping: 0.8"),
       "gradient_accumulation_steps=4 max_grad_norm=0.8 num_processes=2"},
      {in(megatron, "megatron_lm_config", "megatron_lm_use_distributed_optimizer: true"),
       "num_processes=2 strategy=zero1"},
      {in(megatron, "megatron_lm_config", "use_distributed_optimizer: true\nuse_custom_fsdp: true"),
       "num_processes=2 strategy=full_shard"},
      {in(megatron, "megatron_lm_config", "megatron_lm_use_distributed_optimizer: 'false'"), "num_processes=2"},
      {in(megatron, "megatron_lm_config", "megatron_lm_recompute_activations: true"),
       "gradient_checkpointing=true gradient_checkpointing_kwargs=part=attention num_processes=2"},
      {in(megatron, "megatron_lm_config",
          "megatron_lm_recompute_granularity: full\nmegatron_lm_recompute_method: uniform"),
       "gradient_checkpointing=true num_processes=2",
       {"a.yaml:5: megatron_lm_recompute_method has no effect: every block keeps its own inputs"}},
      {in(megatron, "megatron_lm_config",
          "megatron_lm_optimizer_cpu_offload: true\nmegatron_lm_no_save_optim: "
          "true\nmegatron_lm_calculate_per_token_loss: false"),
       "average_tokens_across_devices=false cpu_offload=optimizer num_processes=2 save_only_model=true"},
      {in(megatron, "megatron_lm_config", "megatron_lm_sequence_parallelism: true"),
       "num_processes=2",
       {"a.yaml:4: megatron_lm_sequence_parallelism has no effect: it is for tensor parallelism, whose size is 1"}},
      {in(megatron, "megatron_lm_config",
          "megatron_lm_tp_degree: 2\nmegatron_lm_sequence_parallelism: true\nmegatron_lm_context_parallel_size: 4"),
       "cp_size=4 num_processes=2 sequence_parallel=true tp_size=2"},
      {in(megatron, "megatron_lm_config",
          "megatron_lm_tp_degree: 2\nmegatron_lm_pp_degree: 4\nmegatron_lm_num_micro_batches: 8"),
       "gradient_accumulation_steps=8 num_processes=2 pp_size=4 tp_size=2"},
      {in(megatron, "megatron_lm_config", "megatron_lm_decoder_last_pipeline_num_layers: 3"),
       "num_processes=2",
       {"a.yaml:4: megatron_lm_decoder_last_pipeline_num_layers has no effect: it is for pipeline parallelism, whose "
        "size is 1"}},
  });
}

TEST(AccelerateFile, TheMesh) {
  const std::string four = "distributed_type: FSDP\nnum_processes: 4\n";
  const auto mesh = [&](const std::string& lines, const std::string& more = "") {
    return in(four.c_str(), "parallelism_config", lines) + more;
  };
  expect_settings({
      {mesh("parallelism_config_dp_shard_size: 4\nparallelism_config_tp_size: 1\nparallelism_config_cp_size: 1"),
       "num_processes=4 strategy=full_shard"},
      {mesh("parallelism_config_dp_replicate_size: 2\nparallelism_config_dp_shard_size: 2"),
       "num_processes=4 shard_group_size=2 strategy=hybrid_shard"},
      {mesh("dp_replicate_size: 2\ndp_shard_size: 2",
            "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n"),
       "num_processes=4 shard_group_size=2 strategy=hybrid_shard_zero2"},
      {mesh("dp_replicate_size: 2\ndp_shard_size: 2", "fsdp_config:\n  fsdp_sharding_strategy: SHARD_GRAD_OP\n"),
       "num_processes=4 shard_group_size=2 strategy=hybrid_shard_zero2"},
      {mesh("dp_replicate_size: 1\nsp_size: 1\nsp_backend: deepspeed\ncp_backend: torch"),
       "num_processes=4 strategy=full_shard"},
      {mesh("dp_shard_size: 2\ntp_size: 2"), "num_processes=4 strategy=full_shard tp_size=2"},
      {mesh("dp_shard_size: 2\ncp_size: 2\ncp_comm_strategy: allgather"),
       "cp_comm_type=all_gather cp_size=2 num_processes=4 strategy=full_shard"},
      {mesh("dp_replicate_size: 2\ncp_size: 2\ncp_comm_strategy: alltoall"),
       "cp_comm_type=p2p cp_size=2 num_processes=4 shard_group_size=2 strategy=hybrid_shard"},
      {mesh("dp_shard_size: 2\nsp_size: 2"), "cp_comm_type=a2a cp_size=2 num_processes=4 strategy=full_shard"},
  });
  expect_settings({{in("distributed_type: DEEPSPEED\nnum_processes: 4\n", "parallelism_config",
                       "dp_shard_size: 2\nsp_size: 2\nsp_attn_implementation: sdpa\nsp_seq_length_is_variable: true"),
                    "cp_comm_type=a2a cp_size=2 num_processes=4 zero_stage=2"}});
  expect_problems({
      {mesh("dp_replicate_size: 2\ndp_shard_size: 3"),
       {"a.yaml:4:22: parallelism_config_dp_replicate_size 2 x parallelism_config_dp_shard_size 3 are 6 processes, but "
        "num_processes is 4: make them agree"}},
      {mesh("dp_replicate_size: 4"),
       {"a.yaml:4:22: parallelism_config_dp_replicate_size 4 with dp_shard_size 1 shards nothing, which contradicts "
        "distributed_type FSDP: set dp_shard_size, or use distributed_type MULTI_GPU"}},
      {mesh("parallelism_config_tp_size: 2"),
       {"a.yaml:4:31: parallelism_config_tp_size 2 is 2 processes, but num_processes is 4: make them agree"}},
      {mesh("dp_shard_size: 2\ncp_size: 2\ntp_size: 2"),
       {"a.yaml:4:18: parallelism_config_dp_replicate_size 1 x parallelism_config_dp_shard_size 2 x "
        "parallelism_config_tp_size 2 x parallelism_config_cp_size 2 are 8 processes, but num_processes is 4: make "
        "them agree"}},
      {mesh("cp_size: 2\nsp_size: 2"),
       {"a.yaml:5:12: parallelism_config_sp_size 2 and parallelism_config_cp_size 2 both divide the sequence: keep one "
        "of them"}},
      {mesh("cp_size: 4\ncp_comm_strategy: ring"),
       {"a.yaml:5:21: parallelism_config_cp_comm_strategy must be one of allgather, alltoall, not 'ring'"}},
      {mesh("dp_replicate_size: 0"),
       {"a.yaml:4:22: parallelism_config_dp_replicate_size must be a whole number from 1 to 1048576, not '0'"}},
      {mesh("dp_replicate_size: 2\ndp_shard_size: 2", "fsdp_config:\n  fsdp_sharding_strategy: NO_SHARD\n"),
       {"a.yaml:7:27: fsdp_sharding_strategy NO_SHARD shards nothing, but parallelism_config_dp_shard_size is 2: keep "
        "one of them"}},
      {in("distributed_type: MULTI_GPU\n", "parallelism_config", "dp_shard_size: 2"),
       {"a.yaml:3:18: parallelism_config_dp_shard_size 2 shards the parameters, which requires distributed_type FSDP: "
        "use that, or size 1"}},
  });
}

TEST(AccelerateFile, Mistakes) {
  expect_problems({
      {"num_processes: 2\n",
       {"a.yaml:1:1: distributed_type is missing: one of NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, MEGATRON_LM, XLA"}},
      {"distributed_type: FDSP\n",
       {"a.yaml:1:19: distributed_type must be one of NO, MULTI_CPU, MULTI_GPU, FSDP, DEEPSPEED, MEGATRON_LM, XLA, not "
        "'FDSP' (did you mean FSDP?)"}},
      {"distributed_type: MULTI_NPU\n",
       {"a.yaml:1:19: distributed_type MULTI_NPU means accelerators that are not supported: Tessera runs on CPUs "
        "(MULTI_CPU) and NVIDIA GPUs (MULTI_GPU, FSDP)"}},
      {"distributed_type: TP\n",
       {"a.yaml:1:19: distributed_type TP: write MULTI_GPU, and parallelism_config with tp_size"}},
      {"compute_environment: AMAZON_SAGEMAKER\ndistributed_type: NO\nprofile: p\n",
       {"a.yaml:1:22: compute_environment AMAZON_SAGEMAKER is not supported: Tessera starts jobs on machines that you "
        "can reach; write a file with compute_environment: LOCAL_MACHINE"}},
      {"distributed_type: NO\niam_role_name: me\n",
       {"a.yaml:2:16: iam_role_name: it is for Amazon SageMaker, where Tessera does not start jobs; write a file with "
        "compute_environment: LOCAL_MACHINE"}},
      {"distributed_type: NO\nnum_procesess: 2\n",
       {"a.yaml:2:16: unknown key num_procesess; did you mean num_processes?"}},
      {"distributed_type: NO\nzero_stage: 2\n",
       {"a.yaml:2:13: unknown key zero_stage; it is a key of deepspeed_config, only for distributed_type DEEPSPEED: "
        "pass --zero_stage to the training"}},
      {"distributed_type: DEEPSPEED\nzero_stage: 2\n",
       {"a.yaml:2:13: unknown key zero_stage; it belongs in deepspeed_config"}},
      // the keys as Hugging Face's FSDP guide places them
      {"distributed_type: FSDP\nxla: true\nxla_fsdp_settings:\n  compute_dtype: float16\n  sharding_rank: 0\n",
       {"a.yaml:4:18: compute_dtype is 'float16'; it must be bfloat16 or float32",
        "a.yaml:5:18: sharding_rank: all devices share one set of shards"}},
      {"distributed_type: FSDP\nfsdp_sharding_strategy: 2\n",
       {"a.yaml:2:25: unknown key fsdp_sharding_strategy; it belongs in fsdp_config"}},
      {"distributed_type: MULTI_CPU\nnum_processes: 0\n",
       {"a.yaml:2:16: num_processes must be at least 1 (-1: not given)"}},
      {"distributed_type: MULTI_CPU\nnum_processes: two\n",
       {"a.yaml:2:16: num_processes must be a whole number from -1 to 1048576, not 'two'"}},
      {"distributed_type: MULTI_CPU\nnum_processes: 3\nnum_machines: 2\n",
       {"a.yaml:2:16: num_processes 3 is the total over all machines and is not divisible by num_machines 2"}},
      {"distributed_type: MULTI_CPU\nmachine_rank: 1\n",
       {"a.yaml:2:15: machine_rank 1 of num_machines 1: ranks start at 0"}},
      {"distributed_type: NO\nmixed_precision: bf-16\n",
       {"a.yaml:2:18: mixed_precision must be one of no, fp16, bf16, fp8, not 'bf-16' (did you mean bf16?)"}},
      {"distributed_type: NO\nmixed_precision: fp8\nfp8_config: {backend: MX}\n",
       {"a.yaml:3:23: fp8_backend must be one of TE, AO, MSAMP, not 'mx'"}},
      {"distributed_type: NO\nfp16: true\nmixed_precision: bf16\n",
       {"a.yaml:3:18: mixed_precision bf16 contradicts fp16 on line 2; keep one of them"}},
      {"distributed_type: NO\nuse_cpu: maybe\n", {"a.yaml:2:10: use_cpu must be true or false, not 'maybe'"}},
      {"distributed_type: FSDP\nfsdp_config: FULL_SHARD\n",
       {"a.yaml:2:14: fsdp_config must contain keys and values, such as fsdp_sharding_strategy"}},
      {"- a\n", {"a.yaml:1:1: expected keys such as distributed_type: this is not an accelerate file"}},
  });
}

TEST(AccelerateFile, MistakesInSections) {
  expect_problems({
      {in(fsdp, "fsdp_config", "fsdp_shardng_strategy: 2"),
       {"a.yaml:4:26: unknown key fsdp_shardng_strategy; did you mean fsdp_sharding_strategy?"}},
      {in("distributed_type: NO\n", "fsdp_config", "fsdp_shardng_strategy: 2"),
       {"a.yaml:3:26: unknown key fsdp_shardng_strategy; did you mean fsdp_sharding_strategy?"}},
      {in(deepspeed, "deepspeed_config", "zero_stag: 2"),
       {"a.yaml:4:14: unknown key deepspeed_config.zero_stag; did you mean zero_stage?"}},
      {in(deepspeed, "deepspeed_config", "zero_stage: 4"),
       {"a.yaml:4:15: zero_stage must be a whole number from 0 to 3, not '4'"}},
      {in(deepspeed, "deepspeed_config", "offload_optimizer_device: gpu"),
       {"a.yaml:4:29: offload_optimizer_device must be one of none, cpu, nvme, not 'gpu' (did you mean cpu?)"}},
      {in(deepspeed, "deepspeed_config", "deepspeed_config_file: ds.json\nzero_stage: 3\ngradient_clipping: 1.0") +
           "mixed_precision: bf16\n",
       {"a.yaml:5:15: zero_stage is given with deepspeed_config_file, which contains it: remove it here",
        "a.yaml:6:22: gradient_clipping is given with deepspeed_config_file, which contains it: remove it here",
        "a.yaml:7:18: mixed_precision is given with deepspeed_config_file, which contains it (bf16, fp16): remove it "
        "here"}},
      {in(deepspeed, "deepspeed_config", "gradient_clipping: much"),
       {"a.yaml:4:22: gradient_clipping is 'much'; it must be a number"}},
      {in(megatron, "megatron_lm_config", "megatron_lm_pp_degree: 4\nmegatron_lm_decoder_last_pipeline_num_layers: 3"),
       {"a.yaml:5:49: megatron_lm_decoder_last_pipeline_num_layers 3: remove it, and define each stage's blocks with "
        "--pipeline_layout"}},
      {in(megatron, "megatron_lm_config", "megatron_lm_pp_degree: 0"),
       {"a.yaml:4:26: megatron_lm_pp_degree must be a whole number from 1 to 4096, not '0'"}},
      {in(megatron, "megatron_lm_config", "megatron_lm_expert_tensor_parallel_size: 0"),
       {"a.yaml:4:44: megatron_lm_expert_tensor_parallel_size must be a whole number from 1 to 4096, not '0'"}},
      {in(megatron, "megatron_lm_config", "megatron_lm_recompute_granularity: some"),
       {"a.yaml:4:38: megatron_lm_recompute_granularity must be one of full, selective, not 'some'"}},
      {in(megatron, "megatron_lm_config",
          "megatron_lm_recompute_granularity: full\nmegatron_lm_recompute_activations: true"),
       {"a.yaml:5:38: megatron_lm_recompute_activations recomputes only attention, but "
        "megatron_lm_recompute_granularity full on line 4 recomputes whole blocks: keep one of them"}},
      {in(megatron, "megatron_lm_config", "megatron_lm_eod_mask_loss: true"),
       {"a.yaml:4:30: megatron_lm_eod_mask_loss: all tokens of a block are scored; remove it"}},
      {in(megatron, "megatron_lm_config", "megatron_lm_tp_degre: 1\ntp_degree: 1"),
       {"a.yaml:4:25: unknown key megatron_lm_config.megatron_lm_tp_degre; did you mean megatron_lm_tp_degree?"}},
      {in(megatron, "megatron_lm_config", "megatron_lm_num_micro_batches: 1\nnum_micro_batches: 2"),
       {"a.yaml:5:22: num_micro_batches contradicts megatron_lm_num_micro_batches on line 4, which is the same key: "
        "keep one of them"}},
      {in("distributed_type: NO\n", "dynamo_config", "dynamo_bakend: x"),
       {"a.yaml:3:18: unknown key dynamo_config.dynamo_bakend; did you mean dynamo_backend?"}},
      {in("distributed_type: NO\n", "fp8_config", "amax_history_length: 16\nlevel: 2"),
       {"a.yaml:4:10: unknown key fp8_config.level; the keys are backend, use_autocast_during_eval, margin, interval, "
        "format, amax_history_len, amax_history_length, "
        "amax_compute_algo, amax_compute_algorithm, override_linear_precision, opt_level, optimization_level, "
        "enable_fsdp_float8_all_gather, pad_inner_dim"}},
      {in("distributed_type: NO\n", "parallelism_config", "tp_sise: 2"),
       {"a.yaml:3:12: unknown key parallelism_config.tp_sise; did you mean tp_size?"}},
  });
}

TEST(AccelerateFile, DeepSpeedsFileMayLieBesideIt) {
  const TemporaryFolder folder;
  const std::string yaml = path_join(folder.path(), "a.yaml"), json = path_join(folder.path(), "ds.json");
  write_file_atomically(yaml, in(deepspeed, "deepspeed_config", "deepspeed_config_file: ds.json"));
  const auto nothing = [](const std::string&) { return std::optional<std::string>(); };
  Problems missing, found;
  resolve_flags({"--config_file", yaml}, missing, nothing);
  ASSERT_EQ(missing.lines.size(), 1u);
  EXPECT_TRUE(missing.lines[0].starts_with(concat(yaml, ":4: deepspeed ds.json: no such file"))) << missing.lines[0];
  write_file_atomically(json, R"({"zero_optimization": {"stage": 2}})");
  EXPECT_EQ(resolve_flags({"--config_file", yaml}, found, nothing).values.files.deepspeed, json);
  EXPECT_EQ(found.lines, Words{});
}

TEST(AccelerateFile, FilesThatCannotBeRead) {
  const TemporaryFolder folder;
  const auto problem_of = [](const std::string& path) {
    Problems problems;
    read_accelerate_file(path, problems);
    return problems.lines.size() == 1 ? problems.lines[0] : concat(problems.lines.size(), " problems");
  };
  EXPECT_EQ(problem_of("missing.yaml"), "--config_file missing.yaml: no such file; tessera config writes one");
  EXPECT_EQ(problem_of(folder.path()),
            concat("--config_file ", folder.path(), " is a folder; expected accelerate's YAML or JSON file"));
  const std::string json = path_join(folder.path(), "a.json");
  write_file_atomically(json, "{\"distributed_type\": \"NO\",}");
  EXPECT_NE(problem_of(json).find("a.json:1:"), std::string::npos) << problem_of(json);
  write_file_atomically(json, "[]");
  EXPECT_EQ(problem_of(json), concat(json, ": expected keys such as distributed_type: this is not an accelerate file"));
  write_file_atomically(json, "{\"distributed_type\": \"FSDP\", \"fsdp_config\": {\"fsdp_version\": 2}}");
  Problems problems;
  EXPECT_EQ(testing::read_of(read_accelerate_file(json, problems), problems).settings_text(),
            "device=auto strategy=full_shard");
}

TEST(AccelerateFile, DefaultPath) {
  const TemporaryFolder folder;
  const auto with = [&](std::map<std::string, std::string> variables) {
    return default_accelerate_file([variables](const std::string& name) {
      const auto found = variables.find(name);
      return found == variables.end() ? std::nullopt : std::optional(found->second);
    });
  };
  EXPECT_EQ(with({{"HF_HOME", folder.path()}}), std::nullopt);
  make_folders(path_join(folder.path(), "accelerate"));
  const std::string path = path_join(folder.path(), "accelerate/default_config.yaml");
  write_file_atomically(path, "distributed_type: NO\n");
  EXPECT_EQ(with({{"HF_HOME", folder.path()}}), path);
  make_folders(path_join(folder.path(), ".cache/huggingface/accelerate"));
  const std::string in_home = path_join(folder.path(), ".cache/huggingface/accelerate/default_config.yaml");
  write_file_atomically(in_home, "distributed_type: NO\n");
  EXPECT_EQ(with({{"HOME", folder.path()}}), in_home);
  EXPECT_EQ(with({{"HOME", folder.path()}, {"XDG_CACHE_HOME", "~/.cache"}}), in_home);
  EXPECT_EQ(with({{"HOME", "/nowhere"}, {"HF_HOME", ""}}), std::nullopt);
}

TEST(AccelerateFile, WhatTheLauncherLearns) {
  Problems problems;
  const AccelerateLaunch launch = accelerate_launch(
      parse_yaml(
          "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 2\nmachine_rank: 1\nmain_process_ip: 10.0.0.1\n"
          "main_process_port: 29511\ngpu_ids: 0,3\nenable_cpu_affinity: true\n"
          "deepspeed_config:\n  deepspeed_hostfile: hosts\n  deepspeed_exclusion_filter: a:1\n",
          "a.yaml"),
      problems);
  EXPECT_TRUE(problems.lines.empty());
  EXPECT_EQ(launch.num_processes, 8);
  EXPECT_EQ(launch.num_machines, 2);
  EXPECT_EQ(launch.machine_rank, 1);
  EXPECT_EQ(launch.main_process_ip, "10.0.0.1");
  EXPECT_EQ(launch.main_process_port, 29511);
  EXPECT_EQ(launch.gpu_ids, "0,3");
  EXPECT_TRUE(launch.enable_cpu_affinity);
  EXPECT_EQ(launch.hostfile, "hosts");
  EXPECT_EQ(launch.exclusion_filter, "a:1");
  EXPECT_EQ(accelerate_launch(parse_yaml("gpu_ids: [0, 2]\n", "a.yaml"), problems).gpu_ids, "0,2");
}

// The table itself: every setting exists, every reason is given, every nested key carries its section's prefix, and no
// key occurs twice.
TEST(AccelerateFile, Table) {
  std::set<std::string_view> seen;
  for (const KeyRow& row : accelerate_keys()) {
    EXPECT_TRUE(seen.insert(row.key).second) << row.key;
    if (!row.setting.empty()) {
      EXPECT_NE(find_field(row.setting), nullptr) << row.key;
    }
    if (row.effect != Effect::acts || row.setting.empty()) {
      EXPECT_FALSE(row.why.empty()) << row.key;
    }
    const std::size_t dot = row.key.find('.');
    if (dot != std::string_view::npos) {
      EXPECT_TRUE(row.key.substr(dot + 1).starts_with(accelerate_prefix(row.key.substr(0, dot)))) << row.key;
    }
  }
}

// Every row, in its section and with a value of its type: a refused key gives a problem, an ignored one a note, an
// acting one a setting.
TEST(AccelerateFile, EveryRow) {
  const std::map<std::string_view, const char*> values = {{"compute_environment", "LOCAL_MACHINE"},
                                                          {"distributed_type", "FSDP"},
                                                          {"mixed_precision", "bf16"},
                                                          {"num_processes", "1"},
                                                          {"num_machines", "1"},
                                                          {"machine_rank", "0"},
                                                          {"main_process_ip", "host"},
                                                          {"main_process_port", "29500"},
                                                          {"gpu_ids", "0"},
                                                          {"zero_stage", "1"},
                                                          {"gradient_accumulation_steps", "2"},
                                                          {"gradient_clipping", "0.5"},
                                                          {"offload_optimizer_device", "cpu"},
                                                          {"offload_param_device", "cpu"},
                                                          {"offload_optimizer_nvme_path", "/x"},
                                                          {"offload_param_nvme_path", "/x"},
                                                          {"deepspeed_config_file", "ds.json"},
                                                          {"megatron_lm_num_micro_batches", "2"},
                                                          {"megatron_lm_decoder_last_pipeline_num_layers", "2"},
                                                          {"megatron_lm_gradient_clipping", "0.5"},
                                                          {"parallelism_config_cp_comm_strategy", "allgather"},
                                                          {"megatron_lm_recompute_granularity", "full"}};
  for (const KeyRow& row : accelerate_keys()) {
    const std::size_t dot = row.key.find('.');
    const std::string section(dot == std::string_view::npos ? "" : row.key.substr(0, dot));
    const std::string key(dot == std::string_view::npos ? row.key : row.key.substr(dot + 1));
    if (section.empty() && key.ends_with("_config")) continue;  // a section; its keys are tested on their own
    if (section == "fp8_config") continue;                      // covered by cases/accelerate.txt
    const std::string type = section == "deepspeed_config"     ? "DEEPSPEED"
                             : section == "megatron_lm_config" ? "MEGATRON_LM"
                                                               : "FSDP";
    const bool size = key.ends_with("_size") || key.ends_with("_degree");
    const bool part_of_mesh = size && row.effect == Effect::acts && !row.setting.empty();
    const std::string value = values.contains(key) ? values.at(key) : part_of_mesh ? "2" : size ? "1" : "true";
    std::string yaml = key == "distributed_type" ? "" : concat("distributed_type: ", type, "\n");
    if (key == "rdzv_backend")
      yaml += "rdzv_backend: etcd\n";
    else if (section.empty())
      yaml += concat(key, ": ", value, "\n");
    else {
      yaml += concat(section, ":\n  ", key, ": ", value, "\n");
      if (key == "parallelism_config_dp_replicate_size") yaml += "  parallelism_config_dp_shard_size: 3\n";
      if (key == "parallelism_config_dp_shard_size") yaml += "  parallelism_config_dp_replicate_size: 3\n";
      if (key == "parallelism_config_cp_comm_strategy") yaml += "  parallelism_config_cp_size: 2\n";
      if (key == "megatron_lm_sequence_parallelism") yaml += "  megatron_lm_tp_degree: 2\n";
      if (section == "dynamo_config" && key != "dynamo_backend") yaml += "  dynamo_backend: INDUCTOR\n";
      if (key == "offload_param_device") yaml += "  zero_stage: 3\n";
      if (key.ends_with("nvme_path"))
        yaml += concat("  zero_stage: 3\n  offload_", key.find("param") == std::string::npos ? "optimizer" : "param",
                       "_device: nvme\n");
    }
    const Read read = read_yaml_text(yaml);
    if (row.effect == Effect::refused) {
      EXPECT_EQ(read.problems.size(), 1u) << yaml;
      continue;
    }
    EXPECT_EQ(read.problems, Words{}) << yaml;
    const bool usual = key == "same_network" ||
                       (section == "parallelism_config" && key.find("seq_length") == std::string::npos) ||
                       key.ends_with("is_variable");
    if (row.effect == Effect::ignored && !usual) {
      EXPECT_EQ(read.notes.size(), 1u) << yaml << join(read.notes, "\n");
    }
    if (row.effect == Effect::acts && !row.setting.empty()) {
      EXPECT_TRUE(read.settings.contains(std::string(row.setting))) << yaml;
    }
  }
}

}  // namespace
}  // namespace tessera::config
