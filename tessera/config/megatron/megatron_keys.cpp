// What becomes of each of Megatron's arguments.
#include <tessera/config/megatron/megatron_args.h>

#include <algorithm>
#include <array>
#include <vector>

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
    KeyRow{"distributed_backend", "backend", acts, "nccl: device auto, whose backend follows"},
    KeyRow{"distributed_timeout_minutes", "ddp_timeout", acts, "in seconds"},
    // ---- what is divided ----
    KeyRow{"use_distributed_optimizer", "strategy", acts, "zero1"},
    KeyRow{"use_torch_fsdp2", "strategy", acts, "full_shard"},
    KeyRow{"use_custom_fsdp", "strategy", acts, "full_shard, or as data_parallel_sharding_strategy says"},
    KeyRow{"use_megatron_fsdp", "strategy", acts, "full_shard, or as data_parallel_sharding_strategy says"},
    KeyRow{"data_parallel_sharding_strategy", "strategy", acts,
           "no_shard: ddp; optim: zero1; optim_grads: zero2; optim_grads_params: full_shard"},
    KeyRow{"num_distributed_optimizer_instances", "", acts, "1; more is refused"},
    KeyRow{"overlap_grad_reduce", "overlap_comm"},
    KeyRow{"overlap_param_gather", "", ignored, "parameters are gathered ahead of their use"},
    KeyRow{"ddp_bucket_size", "reduce_bucket_size"},
    KeyRow{"accumulate_allreduce_grads_in_fp32", "", ignored, always},
    KeyRow{"grad_reduce_in_bf16", "reduce_dtype", acts, "bf16"},
    KeyRow{"deterministic_mode", "full_determinism"},
    KeyRow{"optimizer_cpu_offload", "cpu_offload", acts, "optimizer"},
    KeyRow{"recompute_activations", "gradient_checkpointing", acts, "of the attention only"},
    KeyRow{"recompute_granularity", "gradient_checkpointing", acts, "full: whole blocks; selective: the attention"},
    KeyRow{"recompute_method", "", ignored, "every block keeps its own inputs"},
    KeyRow{"recompute_modules", "", ignored, "recompute_granularity selective computes the attention again"},
    KeyRow{"recompute_num_layers", "", ignored,
           "every block keeps its own inputs; gradient_checkpointing_kwargs every=N leaves blocks out"},
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
    KeyRow{"rotary_percent", "", acts, "1.0; less is refused: the models here rotate whole heads"},
    KeyRow{"normalization", "config_overrides", acts, "LayerNorm: GPT-2; RMSNorm: Llama"},
    KeyRow{"norm_epsilon", "config_overrides", acts, shape},
    KeyRow{"layernorm_epsilon", "config_overrides", acts, shape},
    KeyRow{"swiglu", "config_overrides", acts, "Llama"},
    KeyRow{"squared_relu", "", refused, "no model here has it; leave it out"},
    KeyRow{"disable_bias_linear", "config_overrides", acts, "Llama; without it a Llama's layers have biases"},
    KeyRow{"add_qkv_bias", "", refused, "give a Qwen2's config.json with --config_name instead of its shape"},
    KeyRow{"qk_layernorm", "", refused, "give a Qwen3's config.json with --config_name instead of its shape"},
    KeyRow{"untie_embeddings_and_output_weights", "config_overrides", acts, shape},
    KeyRow{"attention_dropout", "config_overrides", acts, shape},
    KeyRow{"hidden_dropout", "config_overrides", acts, shape},
    KeyRow{"init_method_std", "config_overrides", acts, shape},
    // ---- the batch and the steps ----
    KeyRow{"micro_batch_size", "per_device_train_batch_size"},
    KeyRow{"global_batch_size", "gradient_accumulation_steps", acts,
           "divided by micro_batch_size and the number of processes"},
    KeyRow{"rampup_batch_size", "", refused, "the batch keeps its size; leave it out"},
    KeyRow{"seq_length", "block_size", acts, "T tokens, of which T-1 are scored"},
    KeyRow{"train_iters", "max_steps"},
    KeyRow{"train_samples", "max_steps", acts, "divided by global_batch_size"},
    KeyRow{"exit_interval", "max_steps", acts, "when it comes before train_iters, by which the rate still falls"},
    KeyRow{"exit_duration_in_mins", "", refused, "tessera launch --emit slurm --time ends a run after saving"},
    // ---- the optimizer ----
    KeyRow{"optimizer", "optim", acts, "adam: adamw; sgd"},
    KeyRow{"lr", "learning_rate"},
    KeyRow{"min_lr", "lr_scheduler_kwargs"},
    KeyRow{"lr_decay_style", "lr_scheduler_type", acts,
           "constant: constant_with_warmup; linear: linear, with min_lr polynomial; cosine: cosine, with min_lr "
           "cosine_with_min_lr; inverse-square-root"},
    KeyRow{"lr_decay_iters", "lr_scheduler_kwargs", acts, "num_training_steps, unless it is train_iters"},
    KeyRow{"lr_decay_samples", "lr_scheduler_kwargs", acts, "num_training_steps: divided by global_batch_size"},
    KeyRow{"weight_decay_incr_style", "", acts, "constant; others are refused"},
    KeyRow{"lr_warmup_iters", "warmup_steps"},
    KeyRow{"lr_warmup_fraction", "warmup_ratio"},
    KeyRow{"lr_warmup_samples", "warmup_steps", acts, "divided by global_batch_size"},
    KeyRow{"lr_warmup_init", "", acts, "0; more is refused"},
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
    KeyRow{"initial_loss_scale", "initial_scale_power", acts, "a power of two; Megatron's default is 2^32"},
    KeyRow{"min_loss_scale", "min_loss_scale"},
    KeyRow{"loss_scale_window", "loss_scale_window", acts, "Megatron's default is 1000"},
    KeyRow{"hysteresis", "hysteresis", acts, "Megatron's default is 2"},
    KeyRow{"fp8_format", "", refused, "fp8 is not built; use --bf16"},
    KeyRow{"use_precision_aware_optimizer", "", ignored, "bf16_optimizer_states chooses the precision of the moments"},
    // ---- data ----
    KeyRow{"data_path", "train_file", acts, "PREFIX means PREFIX.bin with PREFIX.idx; one only"},
    KeyRow{"train_data_path", "train_file", acts, "PREFIX means PREFIX.bin with PREFIX.idx; one only"},
    KeyRow{"valid_data_path", "validation_file", acts, "PREFIX means PREFIX.bin with PREFIX.idx; one only"},
    KeyRow{"test_data_path", "", ignored, "there is no test after the training"},
    KeyRow{"split", "validation_split_percentage", acts, "the second share"},
    KeyRow{"mock_data", "", refused, "name a file with --data-path"},
    KeyRow{"tokenizer_type", "tokenizer_name", acts,
           "HuggingFaceTokenizer with tokenizer_model, NullTokenizer with vocab_size; others are refused when the data "
           "is text"},
    KeyRow{"tokenizer_model", "tokenizer_name"},
    KeyRow{"vocab_file", "", ignored,
           "tokens of .bin files need no tokenizer; for text give --tokenizer-model a folder with tokenizer.json"},
    KeyRow{"merge_file", "", ignored,
           "tokens of .bin files need no tokenizer; for text give --tokenizer-model a folder with tokenizer.json"},
    KeyRow{"dataloader_type", "", ignored, "train_sampling_strategy chooses the order"},
    KeyRow{"data_cache_path", "", ignored, "there are no index files to keep"},
    KeyRow{"reset_position_ids", "", refused, documents},
    KeyRow{"reset_attention_mask", "", refused, documents},
    KeyRow{"eod_mask_loss", "", refused, documents},
    // ---- checkpoints, logs ----
    KeyRow{"save", "output_dir"},
    KeyRow{"save_interval", "save_steps"},
    KeyRow{"load", "resume_from_checkpoint", acts,
           "the folder of --save: the newest checkpoint in it, if there is one"},
    KeyRow{"finetune", "", refused, "give --model_name_or_path the folder of the weights to start from"},
    KeyRow{"no_save_optim", "save_only_model"},
    KeyRow{"no_load_optim", "", refused,
           "a run is resumed whole; to begin anew from its weights, give --model_name_or_path the checkpoint's folder"},
    KeyRow{"no_load_rng", "", refused,
           "a run is resumed whole; to begin anew from its weights, give --model_name_or_path the checkpoint's folder"},
    KeyRow{"no_save_rng", "", ignored, "random numbers are made from the seed and the step"},
    KeyRow{"ckpt_format", "", ignored, "checkpoints are safetensors that any number of processes reads"},
    KeyRow{"async_save", "async_save"},
    KeyRow{"use_dist_ckpt", "save_state_dict_type", acts, "sharded"},
    KeyRow{"ckpt_fully_parallel_save", "save_state_dict_type", acts, "sharded"},
    KeyRow{"no_ckpt_fully_parallel_save", "", ignored,
           "every process writes what it holds; save_state_dict_type full makes the first one write all"},
    KeyRow{"ckpt_fully_parallel_load", "", ignored, "every process reads what it needs"},
    KeyRow{"ckpt_assume_constant_structure", "", ignored, "what is written where is planned once per run"},
    KeyRow{"non_persistent_save_interval", "checkpoint_in_memory"},
    KeyRow{"non_persistent_ckpt_type", "", acts, "in_memory; other kinds are refused"},
    KeyRow{"check_weight_hash_across_dp_replicas_interval", "check_replicas_steps"},
    KeyRow{"check_for_nan_in_loss_and_grad", "nan_policy", acts, "stop"},
    KeyRow{"no_check_for_nan_in_loss_and_grad", "", ignored,
           "losses and gradients are always checked; nan_policy skip leaves out the steps where they are not finite"},
    KeyRow{"eval_interval", "eval_steps"},
    KeyRow{"eval_micro_batch_size", "per_device_eval_batch_size"},
    KeyRow{"eval_global_batch_size", "", ignored, "what is evaluated is a mean over all of its tokens"},
    KeyRow{"start_eval_at_iter", "eval_delay"},
    KeyRow{"eval_iters", "", ignored, "all of the validation data is evaluated; make it smaller instead"},
    KeyRow{"log_interval", "logging_steps"},
    KeyRow{"tensorboard_dir", "logging_dir"},
    KeyRow{"log_throughput", "", ignored, always},
    KeyRow{"timing_log_level", "", ignored, "--profile writes a timeline"},
    KeyRow{"wandb_exp_name", "run_name"},
    // ---- implementation ----
    KeyRow{"attention_softmax_in_fp32", "", ignored, always},
    KeyRow{"manual_gc", "", ignored, "there is no garbage collector"},
    KeyRow{"calculate_per_token_loss", "average_tokens_across_devices"},
};
// What acts and stands alone. Other arguments take the words that follow, which is harmless where nothing acts.
constexpr std::string_view switches[] = {"use_distributed_optimizer",
                                         "use_torch_fsdp2",
                                         "use_custom_fsdp",
                                         "use_megatron_fsdp",
                                         "overlap_grad_reduce",
                                         "optimizer_cpu_offload",
                                         "recompute_activations",
                                         "group_query_attention",
                                         "use_rotary_position_embeddings",
                                         "swiglu",
                                         "disable_bias_linear",
                                         "untie_embeddings_and_output_weights",
                                         "no_save_optim",
                                         "use_dist_ckpt",
                                         "ckpt_fully_parallel_save",
                                         "calculate_per_token_loss",
                                         "grad_reduce_in_bf16",
                                         "check_for_nan_in_loss_and_grad",
                                         "deterministic_mode"};

// Arguments that share one answer; a star stands for the rest of a name.
struct Family {
  Effect effect;
  std::string_view why, names;
};
constexpr Family families[] = {
    {ignored, trackers,
     "log_params_norm log_timers_to_tensorboard log_validation_ppl_to_tensorboard wandb_project log_* wandb_* "
     "tensorboard_* timing_* one_logger_* no_one_logger enable_one_logger app_tag_* otel_* logging_level "
     "no_log_learnig_rate_to_tensorboard no_log_loss_scale_to_tensorboard no_barrier_with_level_1_timing "
     "config_logger_dir save_activations_interval save_params_interval save_tokens_per_expert_interval"},
    {ignored, "--profile writes a timeline",
     "profile* use_pytorch_profiler record_memory_history memory_snapshot_path nvtx_ranges pytorch_profiler_* "
     "record_shapes"},
    {ignored, fastest,
     "use_mcore_models use_legacy_models transformer_impl use_flash_attn attention_backend "
     "no_gradient_accumulation_fusion no_masked_softmax_fusion no_bias_gelu_fusion no_bias_swiglu_fusion "
     "no_bias_dropout_fusion no_rope_fusion cuda_graph_* enable_cuda_graph external_cuda_graph optimizer_cuda_graph "
     "cross_entropy_* no_persist_layer_norm "
     "apply_query_key_layer_scaling batch_invariant_mode disable_bf16_reduced_precision_matmul disable_jit_fuser "
     "no_gradient_reduce_div_fusion use_te_* te_* use_kitchen_attention kitchen_* use_fused_* onnx_safe "
     "symmetric_ar_type "
     "use_transformer_engine_* fp16_lm_cross_entropy flash_decode defer_embedding_wgrad_compute wgrad_deferral_limit "
     "batch_invariant_backend flash_attention_version fused_residual_rmsnorm use_grouped_gemm_for_dense_mlp "
     "mlp_chunks_for_training gdp_cutedsl_kernel use_flashinfer_fused_rope"},
    {ignored, "buffers and transfers are planned by themselves",
     "ddp_* gtp_* fsdp_* megatron_fsdp_* nccl_* use_nccl_* no_align_* no_delay_grad_reduce overlap_* "
     "no_overlap_p2p_communication keep_fp8_transpose_cache* suggested_communication_unit_size create_all_gather_group "
     "disable_symmetric_registration high_priority_stream_groups use_sharp sharp_enabled_group "
     "torch_fsdp2_no_reshard_after_forward no_use_layer_wise_param_layout use_ring_exchange_p2p disable_gloo_* "
     "distribute_saved_activations empty_unused_memory_level delay_* train_sync_interval enable_full_sharding_in_hsdp "
     "high_priority_a2a_comm_stream fine_grained_offloading_* delta_offload_* "
     "activation_offload_fraction"},
    {ignored, tensor,
     "sequence_parallel tp_comm_overlap tp_comm_* disable_tp_comm_* no_async_tensor_model_parallel_allreduce "
     "no_clone_scatter_output_in_embedding "
     "use_tp_pp_dp_mapping no_tp_comm_* tensor_parallel_num_weight_shards expert_tensor_parallel_num_weight_shards"},
    {ignored, "it belongs to context parallelism, whose size is 1",
     "cp_* hierarchical_context_parallel_sizes max_seqlen_per_cp_rank max_seqlen_per_dp_cp_rank"},
    {ignored, "it belongs to pipeline parallelism, whose size is 1",
     "account_for_* num_virtual_stages_per_pipeline_rank pipeline_model_parallel_comm_backend "
     "pipeline_model_parallel_split_rank microbatch_group_size_per_virtual_pipeline_stage standalone_embedding_stage "
     "decoder_first_pipeline_num_layers decoder_last_pipeline_num_layers no_scatter_gather_tensors_in_pipeline"},
    {ignored, "it belongs to mixtures of experts, which --num-experts asks for", "moe_* ep_overlap_*"},
    {ignored, "it belongs to fp8, which --fp8-format asks for",
     "fp8_* fp4_* no_fp8_wgrad first_last_layers_bf16 num_layers_at_* reuse_grad_buf_for_mxfp8_param_ag"},
    {ignored, "it belongs to an optimizer that --optimizer does not name",
     "muon_* lion_* main_* exp_avg_* no_pin_cpu_* optimizer_offload_fraction use_torch_optimizer_for_cpu_offload "
     "dump_param_to_param_group_map apply_wd_to_qk_layernorm no_weight_decay_cond_type"},
    {ignored, "it is for generation: tessera generate",
     "inference_* enable_chunked_prefill disable_chunked_prefill decode_only_cuda_graphs max_tokens_to_oom "
     "num_speculative_tokens mlp_chunks_for_prefill output_bert_embeddings use_legacy_static_engine "
     "use_same_sampling_seed_across_dp_ranks"},
    {ignored, "the agents of tessera launch watch the ranks and restart them",
     "inprocess_* ft_* enable_ft_package calc_ft_timeouts rerun_* error_injection_* straggler_* "
     "disable_straggler_on_startup adlr_autoresume* exit_signal* run_workload_inspector_server fake_process_group "
     "lazy_mpu_init distributed_timeout_seconds_after_init initialize_socket_comms fault_injector_* "
     "gpu_sniff_test_interval flight_recorder_* no_flight_recorder_*"},
    {ignored, "checkpoints are safetensors with a manifest, which any number of processes reads",
     "dist_ckpt_* use_persistent_ckpt_worker auto_detect_ckpt_format ckpt_drop_redundant_extra_state "
     "distrib_optim_fully_reshardable_mem_efficient use_checkpoint_args no_use_tokenizer_model_from_checkpoint_args "
     "use_mp_args_from_checkpoint_args exit_on_missing_checkpoint save_retain_interval persistent_save_interval "
     "non_persistent_global_ckpt_dir non_persistent_local_* replication* load_main_params_from_ckpt "
     "load_model_opt_format "
     "no_strict_fsdp_dtensor_load result_rejected_tracker_filename use_checkpoint_opt_param_scheduler "
     "override_opt_param_scheduler save_dgrads_interval save_wgrads_interval enable_msc disable_msc async_ckpt_* "
     "async_strategy ckpt_fully_parallel_* ckpt_pg_* verify_integrity no_ckpt_load_validate_sharding_integrity "
     "no_save_tokenizer_assets"},
    {ignored, "weights are initialised from the seed, the same on any number of processes",
     "use_cpu_initialization use_gpu_initialization init_model_with_meta_device data_parallel_random_init "
     "no_initialization"},
    {ignored, mapped,
     "num_workers no_mmap_bin_files dataloader_* num_dataset_builder_threads no_create_attention_mask_in_dataloader "
     "mid_level_dataset_surplus "
     "s3_cache_path object_storage_cache_path no_data_sharding"},
    {ignored, "the tokenizer is what --tokenizer-model holds",
     "tiktoken_* tokenizer_* no_tokenizer_* legacy_tokenizer vocab_extra_ids null_tokenizer_* padded_vocab_size "
     "no_pad_vocab_size trust_remote_code allow_ambiguous_pad_tokens use_gigatoken"},
    {ignored, "what is not finite stops the run", "check_for_spiky_loss check_for_large_grads"},
    {ignored, "there is no garbage collector", "manual_gc_interval no_manual_gc_eval"},
    {ignored, "all of the validation data is evaluated", "full_validation validation_set_names"},
    {ignored, "it is for Megatron's own tests", "test_mode enable_experimental disable_mamba_mem_eff_path"},
    {refused, "no model here has it; leave it out, or give the config.json of a model that is known with --config_name",
     "apply_layernorm_1p apply_residual_connection_post_layernorm attention_output_gate activation_func_clamp_value "
     "experimental_attention_variant dsa_* glu_linear_offset heterogeneous_* linear_* multi_latent_attention mla_* "
     "q_lora_rank kv_lora_rank qk_head_dim qk_pos_emb_head_dim v_head_dim qk_clip* qk_l2_norm cache_mla_latents mtp_* "
     "mscale* mrope_section no_position_embedding no_rope_freq openai_gelu quick_geglu relative_* rotary_interleaved "
     "rotary_scaling_factor rotary_seq_len_interpolation_factor rope_* use_rope_scaling yarn_* "
     "no_yarn_correction_range_round_to_int window_* softmax_type spec mamba_* hybrid_* is_hybrid_model vision_* "
     "dino_* "
     "swin_* img_* patch_dim num_channels num_classes classes_fraction data_per_class_fraction head_lr_mult mask_* "
     "iter_per_epoch retro_* biencoder_* retriever_* bert_* ict_* titles_data_path evidence_data_path block_data_path "
     "embedding_path indexer_* query_in_block_prob use_one_sent_docs short_seq_prob sample_rate encoder_* decoder_* "
     "init_method_xavier_uniform embedding_init_method_std fp32_residual_connection freeze_all_layers "
     "renormalize_blend_weights enable_mhc_connections mhc_* softmax_scale model_provider dataset_provider "
     "language_model_checkpoint"},
    {refused, "rates and initial weights that depend on the width are not built; leave it out", "use_mup mup_*"},
    {refused, "it is not a training: tessera generate continues texts",
     "prompts prompt_file* num_tokens_to_generate incoming_requests_* return_log_probs temperature top_k top_p "
     "top_n_logprobs stop_words output_path output_every_n_results termination_id use_coordinator"},
    {refused, "reinforcement learning and distillation are not built; leave it out",
     "rl_* grpo_* langrl_* perform_rl_step refit_method logits_*"},
    {refused, "documents are not rewritten; leave it out", "fim_*"},
    {refused, "examples in a .jsonl file given as --data-path are fine-tuned on", "sft*"},
    {refused, "all parameters have one learning rate and one decay for the whole run; leave it out",
     "decoupled_* start_weight_decay end_weight_decay lr_wsd_* phase_transition_iterations iterations_to_skip "
     "skip_train "
     "decrease_batch_size_if_needed step_batch_size_schedule"},
    {refused, "give --resume_from_checkpoint the folder checkpoint-N, or --model_name_or_path its weights",
     "ckpt_step override_ckpt_iteration pretrained_checkpoint ckpt_convert_*"},
    {refused, "name one file with --data-path",
     "data_args_path per_split_data_args_path per_dataset_sequences_path multiple_validation_sets"},
    {refused, "give the arguments themselves", "yaml_cfg"},
    {refused, "memory is offloaded by --cpu_offload and --gradient_checkpointing_kwargs offload_inputs_to=DIR",
     "fine_grained_activation_offloading offload_modules min_offloaded_tensor_size cpu_offloading_*"},
    {refused, "copies of shards: --strategy hybrid_shard --shard_group_size N", "outer_dp_sharding_strategy"},
    {refused, "Megatron itself refuses this old name", "batch_size warmup checkpoint_activations model_parallel_size"},
};

}  // namespace

std::span<const KeyRow> megatron_keys() {
  static const std::vector<KeyRow> all = [] {
    std::vector<KeyRow> keys(rows.begin(), rows.end());
    for (const Family& family : families)
      for (std::string_view rest = family.names; !rest.empty();) {
        const std::size_t end = std::min(rest.find(' '), rest.size());
        keys.push_back({rest.substr(0, end), "", family.effect, family.why});
        rest.remove_prefix(std::min(end + 1, rest.size()));
      }
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

bool is_megatron_switch(std::string_view name) {
  return std::find(std::begin(switches), std::end(switches), name) != std::end(switches);
}

}  // namespace tessera::config
