// How each key of accelerate's file is handled. Sections in the order of its documentation.
#include <tessera/config/accelerate/accelerate_file.h>

#include <array>

namespace tessera::config {
namespace {

constexpr auto acts = Effect::acts;
constexpr auto ignored = Effect::ignored;
constexpr auto refused = Effect::refused;

constexpr std::string_view launcher = "it is for the launcher: tessera launch --config_file reads it";
constexpr std::string_view tpu =
    "accelerate uses it to reach TPU machines: start the training on the TPUs' host (docs/tpu.md)";
constexpr std::string_view compiled = "models are compiled ahead of time here";
constexpr std::string_view fp8 = "for mixed_precision fp8";
constexpr std::string_view of_msamp = "it is for MSAMP, which is not implemented";
constexpr std::string_view sagemaker =
    "it is for Amazon SageMaker, where Tessera does not start jobs; write a file with compute_environment: "
    "LOCAL_MACHINE";
constexpr std::string_view alone =
    "the implementation is chosen automatically; block_size sets the length of sequences";

constexpr std::array rows{
    // ---- the machine, and the kind of training ----
    KeyRow{"compute_environment", "", acts, "LOCAL_MACHINE; AMAZON_SAGEMAKER is refused"},
    KeyRow{"distributed_type", "strategy", acts,
           "FSDP, DEEPSPEED and MEGATRON_LM enable their section; MULTI_CPU, MULTI_GPU and NO shard nothing; XLA is "
           "--device xla; other accelerators are refused"},
    KeyRow{"mixed_precision", "bf16", acts,
           "no, bf16 (bf16), fp16 (fp16), fp8 (bf16 with fp8_format hybrid, or according to fp8_config); gradients are "
           "reduced in fp32 unless reduce_dtype changes that"},
    KeyRow{"fp16", "fp16", acts, "old spelling of mixed_precision: fp16"},
    KeyRow{"use_cpu", "device", acts, "true: cpu"},
    KeyRow{"debug", "", ignored, "the shapes of all collectives are always compared"},
    KeyRow{"enable_cpu_affinity", "", ignored, "it is for the launcher: tessera launch --config_file or --bind_cores"},
    KeyRow{"num_processes", "num_processes", acts, "of all machines; -1: not given; with xla: xla_devices"},
    KeyRow{"num_machines", "", acts, "tessera launch reads it"},
    KeyRow{"machine_rank", "", acts, "tessera launch reads it"},
    KeyRow{"main_process_ip", "", acts, "tessera launch reads it"},
    KeyRow{"main_process_port", "main_process_port"},
    KeyRow{"rdzv_backend", "", ignored, "the agents use their own store"},
    KeyRow{"same_network", "", ignored, "the agents use their own store"},
    KeyRow{"gpu_ids", "", acts, "tessera launch sets CUDA_VISIBLE_DEVICES; all: unset"},
    KeyRow{"main_training_function", "", ignored, "the training is a program, not a function"},
    KeyRow{"downcast_bf16", "", ignored, "mixed_precision: bf16 computes in bfloat16, and weights stay fp32"},
    KeyRow{"tpu_name", "", ignored, tpu},
    KeyRow{"tpu_zone", "", ignored, tpu},
    KeyRow{"tpu_use_cluster", "", ignored, tpu},
    KeyRow{"tpu_use_sudo", "", ignored, tpu},
    KeyRow{"tpu_vm", "", ignored, tpu},
    KeyRow{"tpu_env", "", ignored, tpu},
    KeyRow{"command_file", "", ignored, tpu},
    KeyRow{"commands", "", ignored, tpu},
    KeyRow{"dynamo_backend", "", ignored, compiled},
    // ---- sections ----
    KeyRow{"fsdp_config", "fsdp_config", acts, "with distributed_type FSDP: see the keys of fsdp_config"},
    KeyRow{"deepspeed_config", "deepspeed", acts, "with distributed_type DEEPSPEED"},
    KeyRow{"megatron_lm_config", "strategy", acts, "with distributed_type MEGATRON_LM"},
    KeyRow{"parallelism_config", "shard_group_size", acts, "the sizes of the mesh"},
    KeyRow{"fp8_config", "fp8_format", acts, fp8},
    KeyRow{"dynamo_config", "", ignored, compiled},
    KeyRow{"ipex_config", "", ignored, compiled},
    KeyRow{"tp_config", "", ignored,
           "accelerate does not read it; parallelism_config_tp_size of parallelism_config sets tensor parallelism"},
    KeyRow{"mpirun_config", "", ignored, "start the program with mpirun itself, or with tessera launch --hostfile"},
    // ---- Amazon SageMaker ----
    KeyRow{"ec2_instance_type", "", refused, sagemaker},
    KeyRow{"iam_role_name", "", refused, sagemaker},
    KeyRow{"image_uri", "", refused, sagemaker},
    KeyRow{"profile", "", refused, sagemaker},
    KeyRow{"region", "", refused, sagemaker},
    KeyRow{"base_job_name", "", refused, sagemaker},
    KeyRow{"pytorch_version", "", refused, sagemaker},
    KeyRow{"transformers_version", "", refused, sagemaker},
    KeyRow{"py_version", "", refused, sagemaker},
    KeyRow{"sagemaker_inputs_file", "", refused, sagemaker},
    KeyRow{"sagemaker_metrics_file", "", refused, sagemaker},
    KeyRow{"additional_args", "", refused, sagemaker},
    // ---- fsdp_config: keys that fsdp_keys() does not have ----
    KeyRow{"fsdp_config.fsdp_activation_checkpointing_offload", "", ignored,
           "gradient_checkpointing_kwargs offload_inputs_to=DIR moves the blocks' inputs out of memory"},
    // ---- deepspeed_config ----
    KeyRow{"deepspeed_config.deepspeed_config_file", "deepspeed", acts, "a path, a JSON object or base64"},
    KeyRow{"deepspeed_config.zero_stage", "zero_stage", acts, "2 when neither it nor a file is given"},
    KeyRow{"deepspeed_config.gradient_accumulation_steps", "gradient_accumulation_steps", acts, "auto: not given"},
    KeyRow{"deepspeed_config.gradient_clipping", "max_grad_norm", acts, "auto: not given"},
    KeyRow{"deepspeed_config.offload_optimizer_device", "cpu_offload", acts, "none, cpu, nvme"},
    KeyRow{"deepspeed_config.offload_param_device", "cpu_offload", acts, "none, cpu, nvme; for zero_stage 3"},
    KeyRow{"deepspeed_config.offload_optimizer_nvme_path", "offload_folder", acts,
           "accelerate never passes it to the training"},
    KeyRow{"deepspeed_config.offload_param_nvme_path", "offload_folder", acts,
           "accelerate never passes it to the training"},
    KeyRow{"deepspeed_config.zero3_init_flag", "", ignored,
           "weights are read or initialized directly into their shards"},
    KeyRow{"deepspeed_config.zero3_save_16bit_model", "", ignored,
           "full weights are always saved, in the model's own precision"},
    KeyRow{"deepspeed_config.deepspeed_multinode_launcher", "", ignored,
           "tessera launch starts its agents with ssh, or runs under Slurm and mpirun"},
    KeyRow{"deepspeed_config.deepspeed_hostfile", "", ignored, launcher},
    KeyRow{"deepspeed_config.deepspeed_exclusion_filter", "", ignored, launcher},
    KeyRow{"deepspeed_config.deepspeed_inclusion_filter", "", ignored, launcher},
    KeyRow{"deepspeed_config.seq_parallel_communication_data_type", "", ignored,
           "activations are sent in their own type"},
    KeyRow{"deepspeed_config.deepspeed_moe_layer_cls_names", "", ignored,
           "modules that only some processes call require data_dependent"},
    // ---- megatron_lm_config ----
    KeyRow{"megatron_lm_config.megatron_lm_tp_degree", "tp_size"},
    KeyRow{"megatron_lm_config.megatron_lm_pp_degree", "pp_size"},
    KeyRow{"megatron_lm_config.megatron_lm_expert_model_parallel_size", "ep_size"},
    KeyRow{"megatron_lm_config.megatron_lm_expert_tensor_parallel_size", "etp_size"},
    KeyRow{"megatron_lm_config.megatron_lm_context_parallel_size", "cp_size"},
    KeyRow{"megatron_lm_config.megatron_lm_num_micro_batches", "gradient_accumulation_steps", acts,
           "also a pipeline's micro-batches"},
    KeyRow{"megatron_lm_config.megatron_lm_gradient_clipping", "max_grad_norm"},
    KeyRow{"megatron_lm_config.megatron_lm_use_distributed_optimizer", "strategy", acts, "zero1"},
    KeyRow{"megatron_lm_config.megatron_lm_use_custom_fsdp", "strategy", acts, "full_shard"},
    KeyRow{"megatron_lm_config.megatron_lm_recompute_activations", "gradient_checkpointing", acts,
           "attention only (gradient_checkpointing_kwargs part=attention)"},
    KeyRow{"megatron_lm_config.megatron_lm_recompute_granularity", "gradient_checkpointing", acts,
           "full: whole blocks; selective: the attention"},
    KeyRow{"megatron_lm_config.megatron_lm_recompute_method", "", ignored, "every block keeps its own inputs"},
    KeyRow{"megatron_lm_config.megatron_lm_recompute_num_layers", "", ignored,
           "every block keeps its own inputs; gradient_checkpointing_kwargs every=N skips blocks"},
    KeyRow{"megatron_lm_config.megatron_lm_optimizer_cpu_offload", "cpu_offload", acts, "optimizer"},
    KeyRow{"megatron_lm_config.megatron_lm_no_save_optim", "save_only_model"},
    KeyRow{"megatron_lm_config.megatron_lm_calculate_per_token_loss", "average_tokens_across_devices"},
    KeyRow{"megatron_lm_config.megatron_lm_no_load_optim", "", refused,
           "a run is resumed with its full state; to start over from its weights, set model_name_or_path to the "
           "checkpoint's folder"},
    KeyRow{"megatron_lm_config.megatron_lm_eod_mask_loss", "", refused, "all tokens of a block are scored; remove it"},
    KeyRow{"megatron_lm_config.megatron_lm_attention_dropout", "", refused,
           "dropout is part of the model's configuration: config_overrides attn_pdrop=0.1 (GPT-2)"},
    KeyRow{"megatron_lm_config.megatron_lm_hidden_dropout", "", refused,
           "dropout is part of the model's configuration: config_overrides resid_pdrop=0.1 (GPT-2)"},
    KeyRow{"megatron_lm_config.megatron_lm_use_rotary_position_embeddings", "", ignored,
           "the model's configuration determines its positions"},
    KeyRow{"megatron_lm_config.megatron_lm_sequence_parallelism", "sequence_parallel", acts, "if tp_degree is above 1"},
    KeyRow{"megatron_lm_config.megatron_lm_overlap_cpu_optimizer_d2h_h2d", "", ignored,
           "an offloaded step has no copies to overlap on the CPU"},
    KeyRow{"megatron_lm_config.megatron_lm_use_precision_aware_optimizer", "", ignored,
           "bf16_optimizer_states sets the precision of the moments"},
    KeyRow{"megatron_lm_config.megatron_lm_decoder_last_pipeline_num_layers", "", acts,
           "refused if pp_degree is above 1: pipeline_layout defines each stage's blocks"},
    KeyRow{"megatron_lm_config.megatron_lm_attention_backend", "", ignored,
           "the machine's fastest attention is chosen"},
    KeyRow{"megatron_lm_config.megatron_lm_attention_softmax_in_fp32", "", ignored, "softmax is computed in fp32"},
    // ---- parallelism_config ----
    KeyRow{"parallelism_config.parallelism_config_dp_replicate_size", "strategy", acts,
           "more than 1: hybrid_shard (hybrid_shard_zero2)"},
    KeyRow{"parallelism_config.parallelism_config_dp_shard_size", "shard_group_size"},
    KeyRow{"parallelism_config.parallelism_config_tp_size", "tp_size"},
    KeyRow{"parallelism_config.parallelism_config_cp_size", "cp_size"},
    KeyRow{"parallelism_config.parallelism_config_sp_size", "cp_size", acts, "with cp_comm_type a2a"},
    KeyRow{"parallelism_config.parallelism_config_cp_backend", "", ignored, alone},
    KeyRow{"parallelism_config.parallelism_config_cp_comm_strategy", "cp_comm_type", acts,
           "allgather: all_gather; alltoall, which passes keys in a ring: p2p"},
    KeyRow{"parallelism_config.parallelism_config_sp_backend", "", ignored, alone},
    KeyRow{"parallelism_config.parallelism_config_sp_seq_length", "", ignored, alone},
    KeyRow{"parallelism_config.parallelism_config_sp_seq_length_is_variable", "", ignored, alone},
    KeyRow{"parallelism_config.parallelism_config_sp_attn_implementation", "", ignored, alone},
    // ---- fp8_config ----
    KeyRow{"fp8_config.fp8_backend", "fp8_recipe", acts,
           "TE: delayed; AO: tensorwise, hybrid; MSAMP is refused; absent: as TE"},
    KeyRow{"fp8_config.fp8_use_autocast_during_eval", "", ignored, "evaluations compute as the training does"},
    KeyRow{"fp8_config.fp8_margin", "fp8_margin"},
    KeyRow{"fp8_config.fp8_interval", "", ignored, "scales are updated at every step, as in Transformer Engine"},
    KeyRow{"fp8_config.fp8_format", "fp8_format"},
    KeyRow{"fp8_config.fp8_amax_history_len", "fp8_amax_history_len", acts, "default: 1024, for max"},
    KeyRow{"fp8_config.fp8_amax_history_length", "fp8_amax_history_len", acts, "the same"},
    KeyRow{"fp8_config.fp8_amax_compute_algo", "fp8_amax_compute_algo"},
    KeyRow{"fp8_config.fp8_amax_compute_algorithm", "fp8_amax_compute_algo", acts, "the same"},
    KeyRow{"fp8_config.fp8_override_linear_precision", "", acts, "all false; otherwise refused"},
    KeyRow{"fp8_config.fp8_opt_level", "", ignored, of_msamp},
    KeyRow{"fp8_config.fp8_optimization_level", "", ignored, of_msamp},
    KeyRow{"fp8_config.fp8_enable_fsdp_float8_all_gather", "", ignored,
           "parameters are gathered in param_dtype's precision"},
    KeyRow{"fp8_config.fp8_pad_inner_dim", "", ignored, "any size is supported"},
    // ---- dynamo_config ----
    KeyRow{"dynamo_config.dynamo_backend", "", ignored, compiled},
    KeyRow{"dynamo_config.dynamo_mode", "", ignored, compiled},
    KeyRow{"dynamo_config.dynamo_use_fullgraph", "", ignored, compiled},
    KeyRow{"dynamo_config.dynamo_use_dynamic", "", ignored, compiled},
    KeyRow{"dynamo_config.dynamo_use_regional_compilation", "", ignored, compiled},
    // ---- mpirun_config ----
    KeyRow{"mpirun_config.mpirun_hostfile", "", ignored, "tessera launch --hostfile"},
    KeyRow{"mpirun_config.mpirun_ccl", "", ignored, "oneCCL is not used"},
};

}  // namespace

std::span<const KeyRow> accelerate_keys() { return rows; }

std::string_view accelerate_prefix(std::string_view section) {
  if (section == "fsdp_config") return "fsdp_";
  if (section == "deepspeed_config") return "";
  if (section == "megatron_lm_config") return "megatron_lm_";
  if (section == "parallelism_config") return "parallelism_config_";
  if (section == "fp8_config") return "fp8_";
  if (section == "dynamo_config") return "dynamo_";
  if (section == "mpirun_config") return "mpirun_";
  return "";
}

const Value* find_accelerate(const Value& file, std::string_view section, std::string_view key) {
  const Value* scope = section.empty() ? &file : file.is_object() ? file.find(section) : nullptr;
  if (scope == nullptr || !scope->is_object()) return nullptr;
  const std::string_view prefix = accelerate_prefix(section);
  const Value* found = scope->find(key);
  if (found == nullptr && !prefix.empty())
    found = key.starts_with(prefix) ? scope->find(key.substr(prefix.size()))
                                    : scope->find(std::string(prefix) + std::string(key));
  return found != nullptr && !found->is_null() ? found : nullptr;
}

}  // namespace tessera::config
