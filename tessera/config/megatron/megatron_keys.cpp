// What becomes of each of Megatron's arguments.
#include <tessera/config/megatron/megatron_args.h>

#include <algorithm>
#include <array>

namespace tessera::config {
namespace {

constexpr auto acts = Effect::acts;
constexpr auto ignored = Effect::ignored;
constexpr auto refused = Effect::refused;

constexpr std::string_view fastest = "the fastest kernels that the machine has are chosen";
constexpr std::string_view tensor = "it belongs to tensor parallelism, whose size is 1";
constexpr std::string_view pipeline = "pipeline parallelism is not built yet; leave it out";
constexpr std::string_view documents = "all tokens of a block see each other and are scored; leave it out";
constexpr std::string_view experts = "mixtures of experts are not built yet; leave it out";
constexpr std::string_view always = "that is always so";
constexpr std::string_view mapped = "data is mapped into memory; there is nothing to wait for";
constexpr std::string_view trackers = "metrics go to metrics.jsonl, report.html and TensorBoard";
constexpr std::string_view shape = "in config_overrides";

// clang-format off
constexpr std::array rows{
    // ---- the mesh ----
    KeyRow{"tensor_model_parallel_size", "", acts, "1; more is refused"},
    KeyRow{"pipeline_model_parallel_size", "", acts, "1; more is refused"},
    KeyRow{"context_parallel_size", "", acts, "1; more is refused"},
    KeyRow{"expert_model_parallel_size", "", acts, "1; more is refused"},
    KeyRow{"expert_tensor_parallel_size", "", acts, "1; more is refused"},
    KeyRow{"num_layers_per_virtual_pipeline_stage", "", refused, pipeline},
    KeyRow{"pipeline_model_parallel_layout", "", refused, pipeline},
    KeyRow{"num_experts", "", refused, experts},
    KeyRow{"sequence_parallel", "", ignored, tensor},
    KeyRow{"tp_comm_overlap", "", ignored, tensor},
    KeyRow{"distributed_backend", "backend"},
    KeyRow{"distributed_timeout_minutes", "ddp_timeout", acts, "in seconds"},
    // ---- what is divided ----
    KeyRow{"use_distributed_optimizer", "strategy", acts, "zero1"},
    KeyRow{"use_torch_fsdp2", "strategy", acts, "full_shard"},
    KeyRow{"use_custom_fsdp", "strategy", acts, "full_shard, or as data_parallel_sharding_strategy says"},
    KeyRow{"use_megatron_fsdp", "strategy", acts, "full_shard, or as data_parallel_sharding_strategy says"},
    KeyRow{"data_parallel_sharding_strategy", "strategy", acts, "no_shard: ddp; optim: zero1; optim_grads: zero2; optim_grads_params: full_shard"},
    KeyRow{"num_distributed_optimizer_instances", "", acts, "1; more is refused"},
    KeyRow{"overlap_grad_reduce", "overlap_comm"},
    KeyRow{"overlap_param_gather", "", ignored, "parameters are gathered ahead of their use"},
    KeyRow{"ddp_bucket_size", "reduce_bucket_size"},
    KeyRow{"accumulate_allreduce_grads_in_fp32", "", ignored, always},
    KeyRow{"optimizer_cpu_offload", "cpu_offload", acts, "optimizer"},
    KeyRow{"recompute_activations", "gradient_checkpointing", acts, "of the attention only"},
    KeyRow{"recompute_granularity", "gradient_checkpointing", acts, "full: whole blocks; selective: the attention"},
    KeyRow{"recompute_method", "", ignored, "every block keeps its own inputs"},
    KeyRow{"recompute_num_layers", "", ignored, "every block keeps its own inputs; gradient_checkpointing_kwargs every=N leaves blocks out"},
    // ---- the model ----
    KeyRow{"num_layers", "config_overrides", acts, shape},
    KeyRow{"hidden_size", "config_overrides", acts, shape},
    KeyRow{"num_attention_heads", "config_overrides", acts, shape},
    KeyRow{"ffn_hidden_size", "config_overrides", acts, shape},
    KeyRow{"kv_channels", "config_overrides", acts, shape},
    KeyRow{"group_query_attention", "config_overrides", acts, shape},
    KeyRow{"num_query_groups", "config_overrides", acts, shape},
    KeyRow{"max_position_embeddings", "config_overrides", acts, shape},
    KeyRow{"vocab_size", "config_overrides", acts, "in config_overrides; the last id is the end of text"},
    KeyRow{"make_vocab_size_divisible_by", "", ignored, "the vocabulary is not padded"},
    KeyRow{"position_embedding_type", "config_overrides", acts, "learned_absolute: GPT-2; rope: Llama"},
    KeyRow{"use_rotary_position_embeddings", "config_overrides", acts, "Llama"},
    KeyRow{"rotary_base", "config_overrides", acts, shape},
    KeyRow{"rotary_percent", "", acts, "1.0; less is refused"},
    KeyRow{"normalization", "config_overrides", acts, "LayerNorm: GPT-2; RMSNorm: Llama"},
    KeyRow{"norm_epsilon", "config_overrides", acts, shape},
    KeyRow{"layernorm_epsilon", "config_overrides", acts, shape},
    KeyRow{"swiglu", "config_overrides", acts, "Llama"},
    KeyRow{"squared_relu", "", refused, "no model here has it; leave it out"},
    KeyRow{"disable_bias_linear", "config_overrides", acts, "Llama"},
    KeyRow{"add_qkv_bias", "", refused, "give a Qwen2's config.json with --config_name instead of its shape"},
    KeyRow{"qk_layernorm", "", refused, "give a Qwen3's config.json with --config_name instead of its shape"},
    KeyRow{"untie_embeddings_and_output_weights", "config_overrides", acts, shape},
    KeyRow{"attention_dropout", "config_overrides", acts, shape},
    KeyRow{"hidden_dropout", "config_overrides", acts, shape},
    KeyRow{"init_method_std", "config_overrides", acts, shape},
    // ---- the batch and the steps ----
    KeyRow{"micro_batch_size", "per_device_train_batch_size"},
    KeyRow{"global_batch_size", "gradient_accumulation_steps", acts, "divided by micro_batch_size and the number of processes"},
    KeyRow{"rampup_batch_size", "", refused, "the batch keeps its size; leave it out"},
    KeyRow{"seq_length", "block_size", acts, "T tokens, of which T-1 are scored"},
    KeyRow{"train_iters", "max_steps"},
    KeyRow{"train_samples", "max_steps", acts, "divided by global_batch_size"},
    KeyRow{"exit_interval", "", refused, "give --train-iters the number of steps"},
    KeyRow{"exit_duration_in_mins", "", refused, "tessera launch --emit slurm --time ends a run after saving"},
    // ---- the optimizer ----
    KeyRow{"optimizer", "optim", acts, "adam: adamw; sgd"},
    KeyRow{"lr", "learning_rate"},
    KeyRow{"min_lr", "lr_scheduler_kwargs"},
    KeyRow{"lr_decay_style", "lr_scheduler_type", acts, "constant: constant_with_warmup; linear: linear, with min_lr polynomial; cosine: cosine, with min_lr cosine_with_min_lr; inverse-square-root"},
    KeyRow{"lr_decay_iters", "", acts, "the same as train_iters; another number is refused"},
    KeyRow{"lr_warmup_iters", "warmup_steps"},
    KeyRow{"lr_warmup_fraction", "warmup_ratio"},
    KeyRow{"lr_warmup_samples", "warmup_steps", acts, "divided by global_batch_size"},
    KeyRow{"lr_warmup_init", "", acts, "0; more is refused"},
    KeyRow{"lr_wsd_decay_style", "", refused, "give --lr_scheduler_type warmup_stable_decay and its --lr_scheduler_kwargs"},
    KeyRow{"clip_grad", "max_grad_norm"},
    KeyRow{"weight_decay", "weight_decay", acts, "Megatron's default is 0.01"},
    KeyRow{"adam_beta1", "adam_beta1"},
    KeyRow{"adam_beta2", "adam_beta2"},
    KeyRow{"adam_eps", "adam_epsilon"},
    KeyRow{"sgd_momentum", "momentum"},
    KeyRow{"seed", "seed", acts, "Megatron's default is 1234"},
    KeyRow{"bf16", "bf16"},
    KeyRow{"fp16", "fp16"},
    KeyRow{"loss_scale", "loss_scale"},
    KeyRow{"initial_loss_scale", "initial_scale_power", acts, "a power of two"},
    KeyRow{"min_loss_scale", "min_loss_scale"},
    KeyRow{"loss_scale_window", "loss_scale_window"},
    KeyRow{"hysteresis", "hysteresis"},
    KeyRow{"fp8_format", "", refused, "fp8 is not built; use --bf16"},
    KeyRow{"use_precision_aware_optimizer", "", ignored, "bf16_optimizer_states chooses the precision of the moments"},
    // ---- data ----
    KeyRow{"data_path", "train_file", acts, "PREFIX means PREFIX.bin with PREFIX.idx; one only"},
    KeyRow{"train_data_path", "train_file", acts, "PREFIX means PREFIX.bin with PREFIX.idx; one only"},
    KeyRow{"valid_data_path", "validation_file", acts, "PREFIX means PREFIX.bin with PREFIX.idx; one only"},
    KeyRow{"test_data_path", "", ignored, "there is no test after the training"},
    KeyRow{"split", "validation_split_percentage", acts, "the second share"},
    KeyRow{"mock_data", "", refused, "name a file with --data-path"},
    KeyRow{"tokenizer_type", "tokenizer_name", acts, "HuggingFaceTokenizer with tokenizer_model, NullTokenizer with vocab_size; others are refused when the data is text"},
    KeyRow{"tokenizer_model", "tokenizer_name"},
    KeyRow{"vocab_file", "", ignored, "tokens of .bin files need no tokenizer; for text give --tokenizer-model a folder with tokenizer.json"},
    KeyRow{"merge_file", "", ignored, "tokens of .bin files need no tokenizer; for text give --tokenizer-model a folder with tokenizer.json"},
    KeyRow{"num_workers", "", ignored, mapped},
    KeyRow{"dataloader_type", "", ignored, "train_sampling_strategy chooses the order"},
    KeyRow{"data_cache_path", "", ignored, "there are no index files to keep"},
    KeyRow{"no_mmap_bin_files", "", ignored, mapped},
    KeyRow{"reset_position_ids", "", refused, documents},
    KeyRow{"reset_attention_mask", "", refused, documents},
    KeyRow{"eod_mask_loss", "", refused, documents},
    // ---- checkpoints, logs ----
    KeyRow{"save", "output_dir"},
    KeyRow{"save_interval", "save_steps"},
    KeyRow{"load", "resume_from_checkpoint", acts, "the folder of --save: the newest checkpoint in it, if there is one"},
    KeyRow{"finetune", "", refused, "give --model_name_or_path the folder of the weights to start from"},
    KeyRow{"no_save_optim", "save_only_model"},
    KeyRow{"no_load_optim", "", refused, "a run is resumed whole; to begin anew from its weights, give --model_name_or_path the checkpoint's folder"},
    KeyRow{"no_load_rng", "", refused, "a run is resumed whole; to begin anew from its weights, give --model_name_or_path the checkpoint's folder"},
    KeyRow{"no_save_rng", "", ignored, "random numbers are made from the seed and the step"},
    KeyRow{"ckpt_format", "", ignored, "checkpoints are safetensors that any number of processes reads"},
    KeyRow{"async_save", "async_save"},
    KeyRow{"use_dist_ckpt", "save_state_dict_type", acts, "sharded"},
    KeyRow{"ckpt_fully_parallel_save", "save_state_dict_type", acts, "sharded"},
    KeyRow{"no_ckpt_fully_parallel_save", "", ignored, "every process writes what it holds; save_state_dict_type full makes the first one write all"},
    KeyRow{"ckpt_fully_parallel_load", "", ignored, "every process reads what it needs"},
    KeyRow{"ckpt_assume_constant_structure", "", ignored, "what is written where is planned once per run"},
    KeyRow{"non_persistent_save_interval", "checkpoint_in_memory"},
    KeyRow{"non_persistent_ckpt_type", "", acts, "in_memory; other kinds are refused"},
    KeyRow{"check_weight_hash_across_dp_replicas_interval", "check_replicas_steps"},
    KeyRow{"check_for_nan_in_loss_and_grad", "nan_policy", acts, "stop"},
    KeyRow{"no_check_for_nan_in_loss_and_grad", "", refused, "losses and gradients are always checked; --nan_policy skip leaves out the steps where they are not finite"},
    KeyRow{"eval_interval", "eval_steps"},
    KeyRow{"eval_iters", "", ignored, "all of the validation data is evaluated; make it smaller instead"},
    KeyRow{"log_interval", "logging_steps"},
    KeyRow{"tensorboard_dir", "logging_dir"},
    KeyRow{"log_throughput", "", ignored, always},
    KeyRow{"log_params_norm", "", ignored, trackers},
    KeyRow{"log_timers_to_tensorboard", "", ignored, trackers},
    KeyRow{"log_validation_ppl_to_tensorboard", "", ignored, trackers},
    KeyRow{"timing_log_level", "", ignored, "--profile writes a timeline"},
    KeyRow{"wandb_project", "", ignored, trackers},
    KeyRow{"wandb_exp_name", "run_name"},
    // ---- implementation ----
    KeyRow{"use_mcore_models", "", ignored, fastest},
    KeyRow{"use_legacy_models", "", ignored, fastest},
    KeyRow{"transformer_impl", "", ignored, fastest},
    KeyRow{"use_flash_attn", "", ignored, fastest},
    KeyRow{"attention_backend", "", ignored, fastest},
    KeyRow{"attention_softmax_in_fp32", "", ignored, always},
    KeyRow{"no_gradient_accumulation_fusion", "", ignored, fastest},
    KeyRow{"no_masked_softmax_fusion", "", ignored, fastest},
    KeyRow{"no_bias_gelu_fusion", "", ignored, fastest},
    KeyRow{"no_bias_swiglu_fusion", "", ignored, fastest},
    KeyRow{"no_bias_dropout_fusion", "", ignored, fastest},
    KeyRow{"no_rope_fusion", "", ignored, fastest},
    KeyRow{"manual_gc", "", ignored, "there is no garbage collector"},
    KeyRow{"calculate_per_token_loss", "average_tokens_across_devices"},
};
constexpr std::array<std::string_view, 56> switches{
    "sequence_parallel", "tp_comm_overlap", "use_distributed_optimizer", "use_torch_fsdp2", "use_custom_fsdp", "use_megatron_fsdp", "overlap_grad_reduce",
    "overlap_param_gather", "accumulate_allreduce_grads_in_fp32", "optimizer_cpu_offload", "recompute_activations", "group_query_attention",
    "use_rotary_position_embeddings", "swiglu", "squared_relu", "disable_bias_linear", "add_qkv_bias", "qk_layernorm", "untie_embeddings_and_output_weights",
    "bf16", "fp16", "use_precision_aware_optimizer", "mock_data", "no_mmap_bin_files", "reset_position_ids", "reset_attention_mask", "eod_mask_loss",
    "finetune", "no_save_optim", "no_load_optim", "no_load_rng", "no_save_rng", "async_save", "log_throughput", "log_params_norm", "log_timers_to_tensorboard",
    "log_validation_ppl_to_tensorboard", "use_mcore_models", "use_legacy_models", "use_flash_attn", "attention_softmax_in_fp32", "no_gradient_accumulation_fusion",
    "no_masked_softmax_fusion", "no_bias_gelu_fusion", "no_bias_swiglu_fusion", "no_bias_dropout_fusion", "no_rope_fusion", "manual_gc", "calculate_per_token_loss",
    "use_dist_ckpt", "ckpt_fully_parallel_save", "no_ckpt_fully_parallel_save", "ckpt_fully_parallel_load", "ckpt_assume_constant_structure",
    "check_for_nan_in_loss_and_grad", "no_check_for_nan_in_loss_and_grad",
};
// clang-format on

}  // namespace

std::span<const KeyRow> megatron_keys() { return rows; }

bool is_megatron_switch(std::string_view name) {
  return std::find(switches.begin(), switches.end(), name) != switches.end();
}

}  // namespace tessera::config
