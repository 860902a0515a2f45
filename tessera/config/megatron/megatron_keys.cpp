// How each of Megatron's arguments is handled.
#include <tessera/config/megatron/megatron_reading.h>

#include <algorithm>
#include <array>
#include <vector>

namespace tessera::config {
namespace {

using enum Effect;
using Act = MegatronRow::Act;

constexpr std::string_view blocks =
    "every block keeps its own inputs; gradient_checkpointing_kwargs every=N skips blocks";
constexpr std::string_view stages =
    "refused if pipeline_model_parallel_size is above 1: pipeline_model_parallel_layout defines the layers that each "
    "stage "
    "has";
constexpr std::string_view latent = "in config_overrides; DeepSeek-V3's, for multi_latent_attention";
constexpr std::string_view linear = "in config_overrides; for experimental_attention_variant gated_delta_net";
constexpr std::string_view experts = "in config_overrides; for num_experts";
constexpr std::string_view prefixes = "PREFIX means PREFIX.bin with PREFIX.idx; also WEIGHT PREFIX WEIGHT PREFIX ...";
constexpr std::string_view always = "always the case";
constexpr std::string_view shape = "in config_overrides";

constexpr MegatronRow elsewhere(std::string_view key, std::string_view setting, std::string_view why = {}) {
  return {{key, setting, acts, why}, Act::elsewhere};
}
constexpr MegatronRow standing(std::string_view key, std::string_view setting, std::string_view why = {}) {
  return {{key, setting, acts, why}, Act::standing};
}
constexpr MegatronRow value(std::string_view key, std::string_view setting, std::string_view why = {}) {
  return {{key, setting, acts, why}, Act::value};
}
constexpr MegatronRow constant(std::string_view key, std::string_view setting, std::string_view text) {
  return {{key, setting, acts, text == "true" ? std::string_view() : text}, Act::constant, text};
}
constexpr MegatronRow without_effect(std::string_view key, std::string_view why) { return {{key, "", ignored, why}}; }
constexpr MegatronRow not_built(std::string_view key, std::string_view why) { return {{key, "", refused, why}}; }

constexpr std::array rows{
    // ---- the mesh ----
    elsewhere("tensor_model_parallel_size", "tp_size"),
    standing("sequence_parallel", "sequence_parallel", "if tensor_model_parallel_size is above 1"),
    constant("tp_comm_overlap", "tp_comm_overlap", "true"),
    elsewhere("pipeline_model_parallel_size", "pp_size"),
    standing("no_pipeline_parallel", "", "Megatron-DeepSpeed's; refused with pipeline_model_parallel_size above 1"),
    elsewhere("num_layers_per_virtual_pipeline_stage", "pipeline_stages_per_rank",
              "num_layers divided by it and the processes; more than 1: pipeline_schedule interleaved_1f1b"),
    elsewhere("num_virtual_stages_per_pipeline_rank", "pipeline_stages_per_rank",
              "more than 1: pipeline_schedule interleaved_1f1b"),
    elsewhere("pipeline_model_parallel_layout", "pipeline_layout",
              "more than one stage per process: pipeline_schedule interleaved_1f1b"),
    elsewhere("microbatch_group_size_per_virtual_pipeline_stage", "pipeline_group_size"),
    standing("account_for_embedding_in_pipeline_split", "pipeline_layout", "needs num_layers"),
    standing("account_for_loss_in_pipeline_split", "pipeline_layout", "needs num_layers"),
    elsewhere("decoder_first_pipeline_num_layers", "pipeline_layout", "needs num_layers"),
    elsewhere("decoder_last_pipeline_num_layers", "pipeline_layout", "needs num_layers"),
    standing("standalone_embedding_stage", "", stages),
    elsewhere("context_parallel_size", "cp_size"),
    elsewhere("cp_comm_type", "cp_comm_type", "one word for all layers"),
    elsewhere("hierarchical_context_parallel_sizes", "cp_a2a_size", "the first of two, for cp_comm_type a2a+p2p"),
    elsewhere("expert_model_parallel_size", "ep_size"),
    elsewhere("expert_tensor_parallel_size", "etp_size"),
    value("moe_expert_capacity_factor", "moe_capacity_factor"),
    constant("moe_pad_expert_input_to_capacity", "moe_pad_expert_input_to_capacity", "true"),
    elsewhere("distributed_backend", "backend", "nccl: device auto, which selects its backend"),
    elsewhere("distributed_timeout_minutes", "ddp_timeout", "in seconds"),
    // ---- what is sharded ----
    standing("use_distributed_optimizer", "strategy", "zero1"),
    standing("use_torch_fsdp2", "strategy", "full_shard"),
    standing("use_custom_fsdp", "strategy", "full_shard, or according to data_parallel_sharding_strategy"),
    standing("use_megatron_fsdp", "strategy", "full_shard, or according to data_parallel_sharding_strategy"),
    elsewhere("data_parallel_sharding_strategy", "strategy",
              "no_shard: ddp; optim: zero1; optim_grads: zero2; optim_grads_params: full_shard"),
    elsewhere("num_distributed_optimizer_instances", "shard_group_size",
              "the processes that would share the states, divided by it"),
    elsewhere("outer_dp_sharding_strategy", "",
              "no_shard; optim is refused with num_distributed_optimizer_instances above 1"),
    constant("overlap_grad_reduce", "overlap_comm", "true"),
    without_effect("overlap_param_gather", "parameters are gathered ahead of their use"),
    value("ddp_bucket_size", "reduce_bucket_size"),
    without_effect("accumulate_allreduce_grads_in_fp32", always),
    constant("grad_reduce_in_bf16", "reduce_dtype", "bf16"),
    constant("deterministic_mode", "full_determinism", "true"),
    constant("optimizer_cpu_offload", "cpu_offload", "optimizer"),
    standing("recompute_activations", "gradient_checkpointing", "attention only"),
    constant("checkpoint_activations", "gradient_checkpointing", "true"),
    elsewhere("activations_checkpoint_method", "gradient_checkpointing", "whole blocks; an old name"),
    without_effect("activations_checkpoint_num_layers", blocks),
    without_effect("checkpoint_num_layers", blocks),
    elsewhere("recompute_granularity", "gradient_checkpointing", "full: whole blocks; selective: the attention"),
    standing("fine_grained_activation_offloading", "gradient_checkpointing_kwargs",
             "offload_inputs_to=host, for what recompute_granularity recomputes"),
    without_effect("offload_modules", "all inputs kept for recomputation are moved to the host"),
    without_effect("min_offloaded_tensor_size", "tensors of 64 KiB and more are moved to the host"),
    without_effect("recompute_method", "every block keeps its own inputs"),
    without_effect("recompute_modules", "recompute_granularity selective recomputes attention"),
    without_effect("recompute_num_layers", blocks),
    // ---- the model ----
    elsewhere("num_layers", "config_overrides", shape),
    elsewhere("hidden_size", "config_overrides", shape),
    elsewhere("num_attention_heads", "config_overrides", shape),
    elsewhere("ffn_hidden_size", "config_overrides", shape),
    elsewhere("kv_channels", "config_overrides", shape),
    standing("group_query_attention", "config_overrides", shape),
    elsewhere("num_query_groups", "config_overrides", shape),
    elsewhere("max_position_embeddings", "config_overrides", shape),
    elsewhere("vocab_size", "config_overrides", "in config_overrides; the last id is the end of text"),
    without_effect("make_vocab_size_divisible_by", "the vocabulary is not padded"),
    elsewhere("position_embedding_type", "config_overrides", "learned_absolute: GPT-2; rope: Llama or StarCoder2"),
    standing("use_rotary_position_embeddings", "config_overrides", "Llama or StarCoder2"),
    standing("no_position_embedding", "", "with rope, which needs none; otherwise refused"),
    elsewhere("rotary_base", "config_overrides", shape),
    elsewhere("rotary_percent", "config_overrides", "for rope; other than 1: megatron_gpt"),
    elsewhere("normalization", "config_overrides", "LayerNorm: GPT-2, with rope StarCoder2; RMSNorm: Llama"),
    elsewhere("norm_epsilon", "config_overrides", shape),
    elsewhere("layernorm_epsilon", "config_overrides", shape),
    standing("swiglu", "config_overrides", "Llama"),
    standing("no_bias_gelu_fusion", "config_overrides",
             "the exact GELU, as disable_bias_linear does; otherwise the tanh approximation"),
    standing("squared_relu", "config_overrides", "megatron_gpt"),
    standing("apply_layernorm_1p", "config_overrides", "megatron_gpt"),
    standing("disable_bias_linear", "config_overrides",
             "without it a Llama's and StarCoder2's layers have biases; GPT-2 becomes OPT"),
    standing("add_qkv_bias", "config_overrides", "Qwen2, with moe_shared_expert_gate Qwen2-MoE"),
    standing("qk_layernorm", "config_overrides", "Qwen3, with num_experts Qwen3-MoE or DeepSeek-V3"),
    standing("untie_embeddings_and_output_weights", "config_overrides", shape),
    elsewhere("attention_dropout", "config_overrides", shape),
    elsewhere("hidden_dropout", "config_overrides", shape),
    elsewhere("init_method_std", "config_overrides", shape),
    standing("multi_latent_attention", "config_overrides",
             "DeepSeek-V3, with sigmoid routing and a shared expert; otherwise megatron_gpt"),
    elsewhere("q_lora_rank", "config_overrides", latent),
    elsewhere("kv_lora_rank", "config_overrides", latent),
    elsewhere("qk_head_dim", "config_overrides", latent),
    elsewhere("qk_pos_emb_head_dim", "config_overrides", latent),
    elsewhere("v_head_dim", "config_overrides", latent),
    elsewhere("rotary_scaling_factor", "config_overrides", latent),
    elsewhere("mscale", "config_overrides", latent),
    elsewhere("mscale_all_dim", "config_overrides", latent),
    elsewhere("experimental_attention_variant", "config_overrides", "gated_delta_net, with swiglu: megatron_gpt"),
    elsewhere("linear_attention_freq", "config_overrides", linear),
    elsewhere("linear_conv_kernel_dim", "config_overrides", linear),
    elsewhere("linear_key_head_dim", "config_overrides", linear),
    elsewhere("linear_value_head_dim", "config_overrides", linear),
    elsewhere("linear_num_key_heads", "config_overrides", linear),
    elsewhere("linear_num_value_heads", "config_overrides", linear),
    standing("attention_output_gate", "config_overrides", "megatron_gpt"),
    elsewhere("mtp_num_layers", "config_overrides", "for models with rotary positions"),
    elsewhere("mtp_loss_scaling_factor", "mtp_loss_scaling_factor"),
    elsewhere("use_mup", "use_mup"),
    without_effect("mup_width_mult", "it is hidden_size / mup_base_hidden_size, as in Megatron-LM"),
    elsewhere("mup_base_hidden_size", "mup_base_hidden_size"),
    elsewhere("mup_embedding_mult", "mup_embedding_mult"),
    elsewhere("mup_output_mult", "mup_output_mult"),
    elsewhere("mup_base_head_dim", "mup_base_head_dim"),
    elsewhere("mup_attn_scale_power", "mup_attn_scale_power"),
    not_built("mtp_use_repeated_layer", "every depth of multi-token prediction has its own weights; remove it"),
    // ---- its experts ----
    elsewhere("num_experts", "config_overrides",
              "Mixtral, Qwen3-MoE (qk_layernorm), Qwen2-MoE (moe_shared_expert_gate) or DeepSeek-V3 "
              "(multi_latent_attention)"),
    elsewhere("moe_ffn_hidden_size", "config_overrides", experts),
    elsewhere("moe_layer_freq", "config_overrides", experts),
    elsewhere("moe_router_topk", "config_overrides", experts),
    standing("moe_router_pre_softmax", "config_overrides", experts),
    elsewhere("moe_router_score_function", "config_overrides", experts),
    elsewhere("moe_router_num_groups", "config_overrides", latent),
    elsewhere("moe_router_group_topk", "config_overrides", latent),
    elsewhere("moe_router_topk_scaling_factor", "config_overrides", latent),
    elsewhere("moe_input_jitter_eps", "config_overrides", "in config_overrides; Mixtral's"),
    elsewhere("moe_shared_expert_intermediate_size", "config_overrides", experts),
    standing("moe_shared_expert_gate", "config_overrides", "Qwen2-MoE's"),
    elsewhere("moe_router_load_balancing_type", "router_aux_loss_form",
              "aux_loss: micro_batch; seq_aux_loss: sequence; global_aux_loss: global_batch; none: no loss; sinkhorn: "
              "megatron_gpt"),
    elsewhere("moe_aux_loss_coeff", "router_aux_loss_coef"),
    elsewhere("moe_z_loss_coeff", "router_z_loss_coef"),
    standing("moe_router_enable_expert_bias", "router_bias_update_rate", "DeepSeek-V3's; default: 0.001"),
    elsewhere("moe_router_bias_update_rate", "router_bias_update_rate", "with moe_router_enable_expert_bias"),
    // ---- the batch and the steps ----
    value("micro_batch_size", "per_device_train_batch_size"),
    elsewhere("global_batch_size", "gradient_accumulation_steps",
              "divided by micro_batch_size and the number of processes"),
    elsewhere("rampup_batch_size", "batch_size_schedule", "START INCREMENT SAMPLES"),
    elsewhere("step_batch_size_schedule", "batch_size_schedule",
              "its tokens divided by seq_length; global_batch_size is its last"),
    value("seq_length", "block_size", "T tokens, of which T-1 are scored"),
    value("train_iters", "max_steps"),
    elsewhere("train_samples", "max_steps", "divided by global_batch_size, or according to rampup_batch_size"),
    standing("exit_on_missing_checkpoint", "",
             "without a checkpoint in --load: an error instead of a run from scratch"),
    elsewhere("exit_interval", "max_steps",
              "if it ends the run early; the rate still follows the full number of steps"),
    elsewhere("exit_duration_in_mins", "exit_duration_in_mins"),
    // ---- the optimizer ----
    elsewhere("optimizer", "optim", "adam: adamw; sgd; lion; muon and dist_muon: muon"),
    elsewhere("lion_beta1", "optim_args", "for lion; Megatron's default is 0.95"),
    elsewhere("lion_beta2", "optim_args", "for lion; Megatron's default is 0.98"),
    elsewhere("muon_momentum", "optim_args", "for muon; Megatron's default is 0.9"),
    standing("muon_nesterov", "optim_args", "for muon; without it only the average is used"),
    elsewhere("muon_coefficient_type", "optim_args", "for muon; simple or quintic, which is Megatron's default"),
    elsewhere("muon_num_ns_steps", "optim_args", "of muon"),
    elsewhere("muon_scale_mode", "optim_args", "for muon; Megatron's default is spectral"),
    elsewhere("muon_extra_scale_factor", "optim_args", "of muon"),
    elsewhere("muon_scalar_optimizer", "", "adam; lion is refused"),
    standing("muon_no_split_qkv", "", "refused with muon: queries, keys and values are separate matrices"),
    without_effect("muon_fp32_matmul_prec", "muon's products use the precision of the weights"),
    without_effect("muon_tp_mode", "muon orthogonalizes whole matrices"),
    without_effect("muon_use_syrk", "the machine's fastest kernels are chosen"),
    value("lr", "learning_rate"),
    elsewhere("decoupled_lr", "decoupled_lr"),
    elsewhere("decoupled_min_lr", "decoupled_min_lr"),
    elsewhere("min_lr", "lr_scheduler_kwargs"),
    elsewhere("lr_decay_style", "lr_scheduler_type",
              "constant: constant_with_warmup; linear: linear, with min_lr polynomial; cosine: cosine, with min_lr "
              "cosine_with_min_lr; inverse-square-root; WSD: warmup_stable_decay"),
    elsewhere("lr_wsd_decay_style", "lr_scheduler_kwargs",
              "decay_type, for WSD: exponential (Megatron's default), linear, cosine or minus_sqrt"),
    elsewhere("lr_wsd_decay_iters", "lr_scheduler_kwargs", "num_decay_steps, of WSD"),
    elsewhere("lr_wsd_decay_samples", "lr_scheduler_kwargs",
              "num_decay_steps, for WSD: divided by global_batch_size, or according to rampup_batch_size"),
    elsewhere("lr_decay_iters", "lr_scheduler_kwargs", "num_training_steps, unless equal to train_iters"),
    elsewhere("lr_decay_samples", "lr_scheduler_kwargs",
              "num_training_steps: divided by global_batch_size, or according to rampup_batch_size"),
    elsewhere("weight_decay_incr_style", "", "constant; others are refused"),
    value("lr_warmup_iters", "warmup_steps"),
    elsewhere("lr_warmup_fraction", "warmup_ratio"),
    elsewhere("lr_warmup_samples", "warmup_steps", "divided by global_batch_size, or according to rampup_batch_size"),
    elsewhere("lr_warmup_init", "lr_scheduler_kwargs", "warmup_init_lr"),
    value("clip_grad", "max_grad_norm"),
    elsewhere("weight_decay", "weight_decay", "Megatron's default is 0.01"),
    elsewhere("adam_beta1", "adam_beta1"),
    elsewhere("adam_beta2", "adam_beta2"),
    value("adam_eps", "adam_epsilon"),
    value("sgd_momentum", "momentum"),
    elsewhere("seed", "seed", "Megatron's default is 1234"),
    elsewhere("bf16", "bf16"),
    elsewhere("fp16", "fp16"),
    elsewhere("loss_scale", "loss_scale"),
    elsewhere("initial_loss_scale", "initial_scale_power", "a power of two; Megatron's default is 2^32"),
    elsewhere("min_loss_scale", "min_loss_scale"),
    elsewhere("loss_scale_window", "loss_scale_window", "Megatron's default is 1000"),
    elsewhere("hysteresis", "hysteresis", "Megatron's default is 2"),
    elsewhere("fp8_format", "fp8_format"),
    elsewhere("fp8_recipe", "fp8_recipe", "custom is not supported"),
    elsewhere("fp8_margin", "fp8_margin"),
    elsewhere("fp8_amax_history_len", "fp8_amax_history_len"),
    elsewhere("fp8_amax_compute_algo", "fp8_amax_compute_algo"),
    without_effect("fp8_interval", "scales are updated at every step, as in Transformer Engine"),
    without_effect("fp8_param_gather", "parameters are gathered in param_dtype's precision"),
    not_built("no_fp8_wgrad", "weight gradients are fp8 products like the others; remove it"),
    standing("first_last_layers_bf16", "num_layers_at_start_in_bf16",
             "and num_layers_at_end_in_bf16: 1 each by default"),
    elsewhere("num_layers_at_start_in_bf16", "num_layers_at_start_in_bf16", "also without first_last_layers_bf16"),
    elsewhere("num_layers_at_end_in_bf16", "num_layers_at_end_in_bf16", "also without first_last_layers_bf16"),
    not_built("fp4_format", "four bits are not implemented; use --fp8-format"),
    without_effect("use_precision_aware_optimizer", "bf16_optimizer_states sets the precision of the moments"),
    // ---- data ----
    elsewhere("data_path", "train_file", prefixes),
    elsewhere("train_data_path", "train_file", prefixes),
    elsewhere("valid_data_path", "validation_file", prefixes),
    without_effect("test_data_path", "no test follows the training"),
    elsewhere("split", "validation_split_percentage", "the second share"),
    elsewhere("mock_data", "mock_data",
              "documents that count 1, 2, 3, ...; their lengths are drawn differently from Megatron's"),
    elsewhere("fim_data", "fim_data"),
    elsewhere("fim_rate", "fim_rate"),
    elsewhere("fim_spm_rate", "fim_spm_rate"),
    elsewhere("fim_split_sample", "fim_split_sample"),
    elsewhere("fim_fragment_rate", "fim_fragment_rate"),
    elsewhere("fim_no_prefix", "fim_no_prefix"),
    elsewhere("fim_prefix_token", "fim_prefix_token"),
    elsewhere("fim_middle_token", "fim_middle_token"),
    elsewhere("fim_suffix_token", "fim_suffix_token"),
    elsewhere("fim_pad_token", "fim_pad_token"),
    elsewhere("fim_eod_token", "fim_eod_token"),
    elsewhere("tokenizer_type", "tokenizer_name",
              "HuggingFaceTokenizer with tokenizer_model, NullTokenizer with vocab_size; others are refused if the "
              "data is text"),
    value("tokenizer_model", "tokenizer_name"),
    without_effect(
        "vocab_file",
        ".bin files need no tokenizer; for text use --tokenizer-model with a folder that has a tokenizer.json"),
    without_effect(
        "merge_file",
        ".bin files need no tokenizer; for text use --tokenizer-model with a folder that has a tokenizer.json"),
    without_effect("dataloader_type", "train_sampling_strategy chooses the order"),
    without_effect("data_cache_path", "no index files are needed"),
    elsewhere("reset_position_ids", "reset_position_ids", "attention is reset with it"),
    standing("reset_attention_mask", "", "with reset_position_ids, which resets both; otherwise refused"),
    standing("eod_mask_loss", "",
             "with reset_position_ids, which does not score the first token of a document; otherwise refused"),
    // ---- checkpoints, logs ----
    value("save", "output_dir"),
    value("save_interval", "save_steps"),
    elsewhere("load", "resume_from_checkpoint", "the folder of --save: the newest checkpoint in it, if there is one"),
    not_built("finetune", "use --model_name_or_path with the folder of the initial weights"),
    constant("no_save_optim", "save_only_model", "true"),
    not_built("no_load_optim",
              "a run is resumed with its full state; to start over from its weights, use --model_name_or_path with the "
              "checkpoint's folder"),
    without_effect("no_load_rng", "random numbers depend only on the seed and the step"),
    without_effect("no_save_rng", "random numbers depend only on the seed and the step"),
    without_effect("ckpt_format", "checkpoints are safetensors that any number of processes can read"),
    elsewhere("async_save", "async_save"),
    constant("use_dist_ckpt", "save_state_dict_type", "sharded"),
    constant("ckpt_fully_parallel_save", "save_state_dict_type", "sharded"),
    without_effect("no_ckpt_fully_parallel_save",
                   "every process writes its own part; with save_state_dict_type full the first one writes everything"),
    without_effect("ckpt_fully_parallel_load", "every process reads what it needs"),
    without_effect("ckpt_assume_constant_structure", "the layout of checkpoints is planned once per run"),
    value("non_persistent_save_interval", "checkpoint_in_memory"),
    elsewhere("non_persistent_ckpt_type", "", "in_memory; other kinds are refused"),
    value("check_weight_hash_across_dp_replicas_interval", "check_replicas_steps"),
    constant("check_for_nan_in_loss_and_grad", "nan_policy", "stop"),
    without_effect("no_check_for_nan_in_loss_and_grad",
                   "losses and gradients are always checked; nan_policy skip skips steps where they are not finite"),
    elsewhere("eval_interval", "eval_steps", "and eval_strategy, unless eval_iters is 0 or split leaves nothing"),
    value("eval_micro_batch_size", "per_device_eval_batch_size"),
    without_effect("eval_global_batch_size", "the evaluation loss is a mean over all tokens"),
    value("start_eval_at_iter", "eval_delay"),
    elsewhere("eval_iters", "", "0: no evaluation; otherwise all validation data is evaluated, whatever the number"),
    value("log_interval", "logging_steps"),
    value("tensorboard_dir", "logging_dir"),
    without_effect("log_throughput", always),
    without_effect("timing_log_level", "--profile writes a timeline"),
    value("wandb_exp_name", "run_name"),
    // ---- implementation ----
    without_effect("attention_softmax_in_fp32", always),
    without_effect("manual_gc", "no garbage collector runs"),
    constant("calculate_per_token_loss", "average_tokens_across_devices", "true"),
};

}  // namespace

std::span<const KeyRow> megatron_keys() {
  static const std::vector<KeyRow> all = [] {
    std::vector<KeyRow> keys;
    for (const MegatronRow& row : rows) keys.push_back(row.key_row);
    const std::vector<KeyRow> families = megatron_families();
    keys.insert(keys.end(), families.begin(), families.end());
    return keys;
  }();
  return all;
}

const KeyRow* find_megatron_key(std::string_view name) {
  const KeyRow* found = nullptr;
  for (const KeyRow& row : megatron_keys()) {
    if (row.key == name) return &row;
    if (row.key.ends_with('*') && name.starts_with(row.key.substr(0, row.key.size() - 1))) found = &row;
  }
  return found;
}

const MegatronRow* find_megatron_row(std::string_view name) {
  const auto found =
      std::find_if(rows.begin(), rows.end(), [&](const MegatronRow& row) { return row.key_row.key == name; });
  return found == rows.end() ? nullptr : &*found;
}

}  // namespace tessera::config
