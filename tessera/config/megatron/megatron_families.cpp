// Groups of Megatron's arguments that are all handled alike, for the same reason. Ignored arguments are listed by name,
// as in the versions of its parser (megatron/training/arguments.py and the classes that it reads, core_v0.2.0 to
// core_v0.19.0), so that a misspelt one is not accepted; a star for the rest of a name is used only for refused ones.
#include <tessera/config/megatron/megatron_reading.h>

#include <algorithm>

namespace tessera::config {
namespace {

using enum Effect;

constexpr std::string_view fastest = "the machine's fastest kernels are chosen";
constexpr std::string_view tensor = "tensor-parallel communication is chosen automatically";
constexpr std::string_view mapped = "data is memory-mapped, without waiting";
constexpr std::string_view trackers = "metrics go to metrics.jsonl, report.html and TensorBoard";

struct Family {
  Effect effect;
  std::string_view why, names;
};
constexpr Family families[] = {
    {ignored, trackers,
     "log_params_norm log_timers_to_tensorboard log_validation_ppl_to_tensorboard wandb_project "
     "log_batch_size_to_tensorboard log_device_memory_used log_energy log_memory_interval "
     "log_memory_to_tensorboard log_moe_overload_factor log_num_zeros_in_grad log_progress log_straggler "
     "log_world_size_to_tensorboard wandb_entity wandb_save_dir tensorboard_log_interval tensorboard_queue_size "
     "timing_log_option one_logger_async one_logger_entity one_logger_project one_logger_run_name no_one_logger "
     "enable_one_logger app_tag_run_name app_tag_run_version otel_enabled otel_service_name otel_span_groups "
     "logging_level no_log_learnig_rate_to_tensorboard no_log_loss_scale_to_tensorboard "
     "no_barrier_with_level_1_timing config_logger_dir save_activations_interval save_params_interval "
     "save_tokens_per_expert_interval disable_log_loss_scale_to_tensorboard"},
    {ignored, "--profile writes a timeline",
     "profile_ranks profile_step_end profile_step_start use_pytorch_profiler record_memory_history "
     "memory_snapshot_path nvtx_ranges pytorch_profiler_collect_callstack pytorch_profiler_collect_chakra "
     "pytorch_profiler_collect_shapes record_shapes"},
    {ignored, fastest,
     "use_mcore_models use_legacy_models transformer_impl use_flash_attn attention_backend "
     "no_gradient_accumulation_fusion no_masked_softmax_fusion no_bias_swiglu_fusion no_bias_dropout_fusion "
     "no_rope_fusion cuda_graph_dynamic_microbatches cuda_graph_impl cuda_graph_modules cuda_graph_scope "
     "cuda_graph_warmup_steps enable_cuda_graph external_cuda_graph optimizer_cuda_graph "
     "cross_entropy_fusion_impl cross_entropy_loss_fusion no_persist_layer_norm apply_query_key_layer_scaling "
     "batch_invariant_mode disable_bf16_reduced_precision_matmul disable_jit_fuser "
     "no_gradient_reduce_div_fusion use_te_activation_func te_precision_config_file te_rng_tracker "
     "use_kitchen_attention kitchen_attention_backend kitchen_config_file kitchen_recipe_number use_fused_mhc "
     "use_fused_weighted_squared_relu onnx_safe symmetric_ar_type use_transformer_engine_op_fuser "
     "fp16_lm_cross_entropy flash_decode defer_embedding_wgrad_compute wgrad_deferral_limit "
     "batch_invariant_backend flash_attention_version fused_residual_rmsnorm use_grouped_gemm_for_dense_mlp "
     "mlp_chunks_for_training gdp_cutedsl_kernel use_flashinfer_fused_rope no_query_key_layer_scaling "
     "no_scaled_masked_softmax_fusion scaled_upper_triang_masked_softmax_fusion dense_grouped_gemm "
     "use_grouped_gemm_for_shared_expert no_dsa_kernel_fusion gdn_pre_gated_delta_rule_fusion"},
    {ignored, "buffers and transfers are planned automatically",
     "ddp_average_in_collective ddp_num_buckets ddp_pad_buckets_for_high_nccl_busbw "
     "ddp_param_name_patterns_for_fp32_local_accumulation ddp_reduce_scatter_with_fp32_accumulation "
     "gtp_expert_remat_nccl_ub gtp_remat_nccl_ub gtp_remat_opt_in_modules "
     "gtp_remat_reduce_scatter_with_fp32_accumulation fsdp_db_use_persist_buf_on_alloc_fail fsdp_double_buffer "
     "fsdp_manual_registration megatron_fsdp_cache_param_bucket_views "
     "megatron_fsdp_enable_fine_grained_param_gather megatron_fsdp_grad_comm_dtype "
     "megatron_fsdp_main_grads_dtype megatron_fsdp_main_params_dtype megatron_fsdp_max_pool_double_buffer "
     "megatron_fsdp_prefetch_recompute_forward_weights megatron_fsdp_version nccl_all_reduce_for_prefill "
     "nccl_communicator_config_path use_nccl_ub no_align_grad_reduce no_align_param_gather no_delay_grad_reduce "
     "overlap_cpu_optimizer_d2h_h2d overlap_dispatch_backward_with_experts_wgrad "
     "overlap_moe_expert_parallel_comm overlap_p2p_communication overlap_p2p_communication_warmup_flush "
     "overlap_param_gather_with_optimizer_step no_overlap_p2p_communication keep_fp8_transpose_cache "
     "keep_fp8_transpose_cache_when_using_custom_fsdp suggested_communication_unit_size create_all_gather_group "
     "disable_symmetric_registration high_priority_stream_groups use_sharp sharp_enabled_group "
     "torch_fsdp2_no_reshard_after_forward no_use_layer_wise_param_layout use_ring_exchange_p2p "
     "disable_gloo_process_groups distribute_saved_activations empty_unused_memory_level "
     "delay_offload_until_cuda_graph delay_param_gather delay_wgrad_compute train_sync_interval "
     "enable_full_sharding_in_hsdp high_priority_a2a_comm_stream fine_grained_offloading_max_inflight_offloads "
     "delta_offload_bytes_across_pp_ranks activation_offload_fraction DDP_impl use_contiguous_buffers_in_ddp "
     "no_contiguous_buffers_in_local_ddp align_param_gather disable_align_grad_reduce "
     "disable_param_buffers_cpu_backup disable_grad_buffers_cpu_backup distribute_checkpointed_activations "
     "use_layer_wise_param_layout"},
    {ignored, tensor,
     "tp_comm_bootstrap_backend tp_comm_overlap_cfg tp_comm_overlap_rs_dgrad disable_tp_comm_bulk_dgrad "
     "disable_tp_comm_bulk_wgrad disable_tp_comm_overlap_ag disable_tp_comm_overlap_rs disable_tp_comm_split_ag "
     "disable_tp_comm_split_rs no_async_tensor_model_parallel_allreduce no_clone_scatter_output_in_embedding "
     "use_tp_pp_dp_mapping no_tp_comm_bulk_dgrad no_tp_comm_bulk_wgrad no_tp_comm_overlap_ag "
     "no_tp_comm_overlap_rs no_tp_comm_split_ag no_tp_comm_split_rs tensor_parallel_num_weight_shards "
     "expert_tensor_parallel_num_weight_shards disable_async_tensor_model_parallel_allreduce "
     "disable_clone_scatter_output_in_embedding"},
    {ignored, "context-parallel communication is chosen automatically",
     "cp_partition_mode max_seqlen_per_cp_rank max_seqlen_per_dp_cp_rank"},
    {ignored, "communication between pipeline stages is chosen automatically",
     "pipeline_model_parallel_comm_backend no_scatter_gather_tensors_in_pipeline"},
    {ignored, "encoder-decoder models are not supported", "pipeline_model_parallel_split_rank"},
    {ignored, "the exchange of tokens with experts, and its overlap, are chosen automatically",
     "moe_combine_bwd_dtype moe_deepep_num_sms moe_dispatch_fwd_dtype moe_enable_deepep moe_extended_tp "
     "moe_flex_dispatcher_backend moe_flex_dispatcher_num_sms moe_grouped_gemm moe_hybridep_num_blocks_permute "
     "moe_hybridep_num_blocks_unpermute moe_hybridep_num_sms moe_hybridep_num_sms_preprocessing "
     "moe_hybridep_pad_uneven_dispatch_inputs moe_hybridep_pad_variable_tokens moe_layer_recompute "
     "moe_mlp_glu_interleave_size moe_ncclep_static_shape moe_ncclep_use_symm_mem moe_ncclep_zero_copy "
     "moe_pad_experts_for_cuda_graph_inference moe_paged_stash moe_paged_stash_buffer_size_factor_cpu "
     "moe_paged_stash_buffer_size_factor_cuda moe_paged_stash_page_size moe_per_layer_logging "
     "moe_permute_fusion moe_permute_fusion_into_hybridep moe_router_dtype moe_router_fusion "
     "moe_router_padding_for_fp8 moe_router_padding_for_quantization moe_routing_trace_capture_hidden_states "
     "moe_routing_trace_capture_logits moe_routing_trace_dump_weights moe_routing_trace_max_training_iters "
     "moe_routing_trace_path moe_shared_expert_glu_interleave_size moe_shared_expert_overlap "
     "moe_single_grouped_bias moe_single_grouped_weight moe_token_dispatcher_type "
     "moe_token_dropping moe_use_grouped_tensor moe_use_legacy_grouped_gemm "
     "ep_overlap_early_attn_memory_release"},
    {refused, "--moe-expert-capacity-factor limits the tokens per expert; remove it",
     "moe_expert_rank_capacity_factor"},
    {refused, "routers choose experts by score (in DeepSeek-V3 with a bias); remove it",
     "moe_router_topk_limited_devices moe_router_force_biased moe_router_force_load_balancing "
     "moe_router_quantile_balancing_ema moe_enable_routing_replay moe_n_hash_layers"},
    {refused, "only the experts of known models are supported; remove it",
     "moe_use_upcycling moe_upcycling_granularity moe_latent_size moe_apply_probs_on_input"},
    {ignored, "only the blocks' linear layers use fp8, by --fp8-format and --fp8-recipe; communication does not",
     "fp8_e4m3 fp8_hybrid fp8_output_proj fp8_quantizer_factory reuse_grad_buf_for_mxfp8_param_ag"},
    {ignored, "it is for fp4 (--fp4-format)", "fp4_param_gather fp4_quantizer_factory fp4_recipe"},
    {ignored, "it is for an optimizer other than --optimizer",
     "muon_use_nesterov main_grads_dtype main_params_dtype exp_avg_dtype exp_avg_sq_dtype no_pin_cpu_grads "
     "no_pin_cpu_params optimizer_offload_fraction use_torch_optimizer_for_cpu_offload "
     "dump_param_to_param_group_map apply_wd_to_qk_layernorm no_weight_decay_cond_type"},
    {ignored, "it is for generation: tessera generate",
     "inference_batch_times_seqlen_threshold inference_coordinator_port inference_cuda_graph_all_prefills "
     "inference_cuda_graph_max_tokens inference_cuda_graph_scope inference_disable_ep_consensus "
     "inference_disable_triton_nvls_kernels inference_dynamic_batching "
     "inference_dynamic_batching_async_sched_mode inference_dynamic_batching_block_size "
     "inference_dynamic_batching_buffer_guaranteed_fraction inference_dynamic_batching_buffer_overflow_factor "
     "inference_dynamic_batching_buffer_size_gb inference_dynamic_batching_chunk_size "
     "inference_dynamic_batching_cuda_graph_max_tokens "
     "inference_dynamic_batching_cuda_graph_mixed_prefill_count "
     "inference_dynamic_batching_cuda_graph_sizing_distribution inference_dynamic_batching_logprobs_mode "
     "inference_dynamic_batching_mamba_memory_ratio inference_dynamic_batching_max_requests "
     "inference_dynamic_batching_max_requests_override inference_dynamic_batching_max_tokens "
     "inference_dynamic_batching_max_tokens_override inference_dynamic_batching_num_cuda_graphs "
     "inference_dynamic_batching_paused_buffer_size_gb inference_dynamic_batching_prefix_caching "
     "inference_dynamic_batching_prefix_caching_coordinator_policy "
     "inference_dynamic_batching_prefix_caching_eviction_policy "
     "inference_dynamic_batching_prefix_caching_mamba_gb "
     "inference_dynamic_batching_prefix_caching_routing_alpha inference_dynamic_batching_sampling_backend "
     "inference_dynamic_batching_track_generated_token_events "
     "inference_dynamic_batching_track_paused_request_events inference_dynamic_batching_unified_memory_level "
     "inference_fuse_tp_communication inference_grouped_gemm_backend inference_logging_step_interval "
     "inference_max_batch_size inference_max_requests inference_max_seq_length "
     "inference_moe_disable_fused_quant_kernels inference_moe_token_dispatcher_type inference_rng_tracker "
     "inference_shards inference_text_gen_server_logging inference_use_synchronous_zmq_collectives "
     "inference_wandb_logging enable_chunked_prefill disable_chunked_prefill decode_only_cuda_graphs "
     "max_tokens_to_oom num_speculative_tokens mlp_chunks_for_prefill output_bert_embeddings "
     "use_legacy_static_engine use_same_sampling_seed_across_dp_ranks no_inference_disable_ep_consensus "
     "no_inference_dynamic_batching_prefix_caching no_inference_text_gen_server_logging "
     "no_inference_use_synchronous_zmq_collectives no_inference_wandb_logging"},
    {ignored, "the agents of tessera launch watch the ranks and restart them",
     "inprocess_active_world_size inprocess_barrier_timeout inprocess_completion_timeout "
     "inprocess_empty_cuda_cache inprocess_granularity inprocess_hard_timeout inprocess_heartbeat_interval "
     "inprocess_heartbeat_timeout inprocess_last_call_wait inprocess_max_iterations "
     "inprocess_monitor_process_interval inprocess_monitor_thread_interval inprocess_progress_watchdog_interval "
     "inprocess_restart inprocess_soft_timeout inprocess_termination_grace_time ft_num_warmup_iters "
     "enable_ft_package calc_ft_timeouts rerun_mode error_injection_rate error_injection_type "
     "straggler_ctrlr_port straggler_minmax_count disable_straggler_on_startup adlr_autoresume "
     "adlr_autoresume_interval exit_signal exit_signal_handler exit_signal_handler_for_dataloader "
     "exit_signal_handler_for_training run_workload_inspector_server fake_process_group lazy_mpu_init "
     "distributed_timeout_seconds_after_init initialize_socket_comms fault_injector_delay_start_iteration "
     "fault_injector_fault_delay fault_injector_fault_probabilities fault_injector_fault_types "
     "fault_injector_mtti_seconds fault_injector_num_ranks fault_injector_offset_seconds fault_injector_ranks "
     "fault_injector_seed gpu_sniff_test_interval flight_recorder_dump_path flight_recorder_include_stack_trace "
     "flight_recorder_trace_buffer_size no_flight_recorder_dump_on_timeout "
     "no_flight_recorder_extra_dump_on_exec no_flight_recorder_include_only_active "
     "disable_flight_recorder_dump_on_timeout disable_flight_recorder_extra_dump_on_exec "
     "disable_flight_recorder_include_only_active"},
    {ignored, "checkpoints are safetensors with a manifest, which any number of processes can read",
     "dist_ckpt_format dist_ckpt_optim_fully_reshardable dist_ckpt_save_pre_mcore_014 dist_ckpt_strictness "
     "dist_ckpt_workers use_persistent_ckpt_worker auto_detect_ckpt_format ckpt_drop_redundant_extra_state "
     "distrib_optim_fully_reshardable_mem_efficient use_checkpoint_args "
     "no_use_tokenizer_model_from_checkpoint_args use_mp_args_from_checkpoint_args save_retain_interval "
     "persistent_save_interval non_persistent_global_ckpt_dir non_persistent_local_ckpt_algo "
     "non_persistent_local_ckpt_dir replication replication_factor replication_jump load_main_params_from_ckpt "
     "load_model_opt_format no_strict_fsdp_dtensor_load result_rejected_tracker_filename "
     "use_checkpoint_opt_param_scheduler override_opt_param_scheduler save_dgrads_interval save_wgrads_interval "
     "enable_msc disable_msc async_ckpt_cpu_priority async_ckpt_io_priority async_ckpt_use_cpu_shm "
     "async_strategy ckpt_fully_parallel_load_exchange_algo ckpt_fully_parallel_load_per_rank_objects "
     "ckpt_fully_parallel_load_process_group ckpt_fully_parallel_save_process_group "
     "ckpt_pg_tensors_cache_create ckpt_pg_tensors_cache_path verify_integrity "
     "no_ckpt_load_validate_sharding_integrity no_save_tokenizer_assets use_checkpoint_lr_scheduler "
     "override_lr_scheduler disable_ckpt_load_validate_sharding_integrity disable_save_tokenizer_assets "
     "disable_strict_fsdp_dtensor_load disable_use_tokenizer_model_from_checkpoint_args "
     "disable_stream_ckpt_dequant no_stream_ckpt_dequant"},
    {ignored, "weights are initialized from the seed, equally for any number of processes",
     "use_cpu_initialization use_gpu_initialization init_model_with_meta_device data_parallel_random_init "
     "no_initialization"},
    {ignored, mapped,
     "num_workers no_mmap_bin_files dataloader_defer_npy_index_mmap dataloader_fast_cache_load "
     "dataloader_inter_document_masking per_dataset_sequences_path num_dataset_builder_threads "
     "no_create_attention_mask_in_dataloader mid_level_dataset_surplus s3_cache_path object_storage_cache_path "
     "no_data_sharding data_impl mmap_warmup"},
    {ignored, "--tokenizer-model determines the tokenizer",
     "tiktoken_num_special_tokens tiktoken_pattern tiktoken_special_tokens tokenizer_hf_include_special_tokens "
     "tokenizer_hf_no_include_special_tokens tokenizer_hf_no_use_fast tokenizer_hf_use_fast tokenizer_metadata "
     "tokenizer_sentencepiece_legacy tokenizer_special_tokens "
     "no_tokenizer_sentencepiece_ignore_extra_whitespaces legacy_tokenizer vocab_extra_ids "
     "null_tokenizer_eod_id null_tokenizer_pad_id padded_vocab_size no_pad_vocab_size trust_remote_code "
     "allow_ambiguous_pad_tokens use_gigatoken disable_pad_vocab_size "
     "disable_tokenizer_sentencepiece_ignore_extra_whitespaces"},
    {ignored, "values that are not finite stop the run", "check_for_spiky_loss check_for_large_grads"},
    {ignored, "from scratch it is the same model, with the rows of q and k in another order", "rotary_interleaved"},
    {ignored, "no garbage collector runs", "manual_gc_interval no_manual_gc_eval disable_manual_gc_eval"},
    {ignored, "all validation data is evaluated", "full_validation validation_set_names"},
    {ignored, "it is for Megatron's own tests", "test_mode enable_experimental disable_mamba_mem_eff_path"},
    {refused, "no supported model has it; remove it, or use --config_name with the config.json of a supported model",
     "apply_residual_connection_post_layernorm activation_func_clamp_value dsa_* glu_linear_offset "
     "heterogeneous_* mla_* qk_clip* qk_l2_norm cache_mla_latents mtp_detach_heads mtp_hsm "
     "mtp_hybrid_override_pattern mtp_standalone mrope_section no_rope_freq openai_gelu quick_geglu relative_* "
     "rotary_seq_len_interpolation_factor rope_scaling_factor rope_type use_rope_scaling yarn_* "
     "no_yarn_correction_range_round_to_int window_* softmax_type spec mamba_* hybrid_* is_hybrid_model "
     "vision_* dino_* swin_* img_* patch_dim num_channels num_classes classes_fraction data_per_class_fraction "
     "head_lr_mult mask_* iter_per_epoch retro_* biencoder_* retriever_* bert_* ict_* titles_data_path "
     "evidence_data_path block_data_path embedding_path indexer_* query_in_block_prob use_one_sent_docs "
     "short_seq_prob sample_rate encoder_* decoder_* init_method_xavier_uniform embedding_init_method_std "
     "fp32_residual_connection freeze_all_layers renormalize_blend_weights enable_mhc_connections mhc_* "
     "softmax_scale model_provider dataset_provider language_model_checkpoint linear_attention_type "
     "enable_hyper_connections num_residual_streams csa_compress_ratios csa_compress_rotary_base csa_dense_mode "
     "csa_window_size o_groups o_lora_rank gdp_num_householder head_wise_attn_gate enable_gpt_oss "
     "rotary_base_per_layer embedding_weights_in_fp32 mrope_interleaved"},
    {refused, "it is not for training: tessera generate continues texts",
     "prompts prompt_file* num_tokens_to_generate incoming_requests_* return_log_probs temperature top_k top_p "
     "top_n_logprobs stop_words output_path output_every_n_results termination_id use_coordinator"},
    {refused, "reinforcement learning and distillation are not implemented; remove it",
     "rl_* grpo_* langrl_* perform_rl_step refit_method logits_* export_kd_* export_te_mcore_model "
     "no_rl_use_sequence_packing export_model_type modelopt_enabled teacher_model_config finetune_hf_dataset"},
    {refused, "for fine-tuning, use a .jsonl file of examples as --data-path", "sft*"},
    {refused, "weight decay is constant, and learning rates have the forms of lr_decay_style; remove it",
     "start_weight_decay end_weight_decay phase_transition_iterations iterations_to_skip skip_train"},
    {refused,
     "use --step-batch-size-schedule or --rampup-batch-size, with sizes that all processes share evenly; remove it",
     "decrease_batch_size_if_needed"},
    {refused, "use --resume_from_checkpoint with the folder checkpoint-N, or --model_name_or_path for its weights",
     "ckpt_step override_ckpt_iteration pretrained_checkpoint ckpt_convert_*"},
    {refused, "specify one file with --data-path", "data_args_path per_split_data_args_path multiple_validation_sets"},
    {refused, "pass the arguments themselves", "yaml_cfg"},
    {refused, "use --cpu_offload and --gradient_checkpointing_kwargs offload_inputs_to=DIR to offload memory",
     "cpu_offloading_num_layers cpu_offloading_retain_pinned_cpu_buffers"},
    {refused, "Megatron itself refuses this old name", "batch_size warmup model_parallel_size"},
};

}  // namespace

std::vector<KeyRow> megatron_families() {
  std::vector<KeyRow> keys;
  for (const Family& family : families)
    for (std::string_view rest = family.names; !rest.empty();) {
      const std::size_t end = std::min(rest.find(' '), rest.size());
      keys.push_back({rest.substr(0, end), "", family.effect, family.why});
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  return keys;
}

}  // namespace tessera::config
