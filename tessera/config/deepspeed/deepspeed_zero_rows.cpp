// DeepSpeed's section zero_optimization.

#include <tessera/config/deepspeed/deepspeed_rows.h>

namespace tessera::config::deepspeed {

std::span<const Row> zero_rows();

namespace {

using enum Kind;

constexpr std::string_view kFlat = "parameters and gradients are stored in flat buffers, which need no copies";
constexpr std::string_view kAnyWorld = "checkpoints can be read by any number of processes";
constexpr std::string_view kQuantized =
    "communication in 4 or 8 bits is not implemented; communication_data_type bf16 halves what is sent";

constexpr Row zero_table[] = {
    acts("zero_optimization", section, "zero_stage", "true and false, the oldest form: stage 1 and 0"),
    acts("zero_optimization.stage", whole, "zero_stage"),
    direct("zero_optimization.overlap_comm", flag, "overlap_comm", {}, "absent: true at stage 3, false at 1 and 2"),
    acts("zero_optimization.reduce_bucket_size", whole, "reduce_bucket_size",
         "\"auto\": hidden size squared; absent: ddp_bucket_cap_mb"),
    acts("zero_optimization.offload_optimizer", section, "cpu_offload"),
    acts("zero_optimization.offload_optimizer.device", text, "cpu_offload", "none, cpu or nvme"),
    acts("zero_optimization.offload_optimizer.nvme_path", text, "offload_folder", "for device nvme"),
    ignored("zero_optimization.offload_optimizer.buffer_count", whole, kPaged),
    ignored("zero_optimization.offload_optimizer.pin_memory", flag, kPaged, "false"),
    ignored("zero_optimization.offload_optimizer.pipeline_read", flag, kPaged, "false"),
    ignored("zero_optimization.offload_optimizer.pipeline_write", flag, kPaged, "false"),
    ignored("zero_optimization.offload_optimizer.pipeline", flag, kPaged, "false"),
    ignored("zero_optimization.offload_optimizer.fast_init", flag, kPaged, "false"),
    ignored("zero_optimization.offload_optimizer.ratio", number, "all optimizer states are offloaded, or none", "1"),
    ignored("zero_optimization.offload_optimizer.super_offload", flag, kPaged, "false"),
    ignored("zero_optimization.offload_optimizer.cpuadam_cores_perc", number,
            "threads_per_process sets the number of cores"),
    acts("zero_optimization.offload_param", section, "cpu_offload", "stage 3"),
    acts("zero_optimization.offload_param.device", text, "cpu_offload", "none, cpu or nvme"),
    acts("zero_optimization.offload_param.nvme_path", text, "offload_folder", "for device nvme"),
    ignored("zero_optimization.offload_param.buffer_count", whole, kPaged),
    ignored("zero_optimization.offload_param.buffer_size", whole, kPaged),
    ignored("zero_optimization.offload_param.max_in_cpu", whole, kPaged),
    ignored("zero_optimization.offload_param.pin_memory", flag, kPaged, "false"),
    acts("zero_optimization.stage3_prefetch_bucket_size", whole, "backward_prefetch",
         "0: no prefetch (and forward_prefetch false); otherwise the next block is prefetched"),
    direct("zero_optimization.stage3_param_persistence_threshold", whole, "persistence_threshold", {},
           "\"auto\": 10 x hidden size; absent: 0, since a block's parameters are gathered together"),
    acts("zero_optimization.zero_hpz_partition_size", whole, "shard_group_size",
         "above 1: hybrid_shard in groups of this size (optimizer states, too)"),
    acts("zero_optimization.mics_shard_size", integer, "shard_group_size",
         "above 0: hybrid_shard in groups of this size"),

    ignored("zero_optimization.allgather_bucket_size", whole, kUnits),
    ignored("zero_optimization.reduce_scatter", flag, "sharded gradients are reduced and scattered in one step",
            "true"),
    ignored("zero_optimization.contiguous_gradients", flag, kFlat, "true"),
    ignored("zero_optimization.allgather_partitions", flag, kUnits, "true"),
    ignored("zero_optimization.use_multi_rank_bucket_allreduce", flag, kUnits, "true"),
    ignored("zero_optimization.sub_group_size", whole, "the optimizer processes its shard in memory order"),
    ignored("zero_optimization.stage3_model_persistence_threshold", whole,
            "only stage3_param_persistence_threshold applies"),
    ignored("zero_optimization.stage3_max_live_parameters", whole, "limit_all_gathers limits prefetching"),
    ignored("zero_optimization.stage3_max_reuse_distance", whole,
            "reshard_after_forward determines whether blocks stay gathered"),
    ignored("zero_optimization.stage3_gather_16bit_weights_on_model_save", flag,
            "the full model is always saved, as safetensors", "true"),
    ignored("zero_optimization.stage3_module_granularity_threshold", whole, kUnits, "0"),
    ignored("zero_optimization.stage3_use_all_reduce_for_fetch_params", flag, kUnits, "false"),
    ignored("zero_optimization.stage3_allgather_sequential", flag, kUnits, "false"),
    refused("zero_optimization.zero_quantized_weights", flag, kQuantized, "false"),
    refused("zero_optimization.zero_quantized_nontrainable_weights", flag, kQuantized, "false"),
    refused("zero_optimization.zero_quantized_gradients", flag, kQuantized, "false"),
    refused("zero_optimization.zeropp_loco_param", section, kQuantized),
    ignored("zero_optimization.mics_hierarchical_params_gather", flag, "the backend hier gathers inside a host first",
            "false"),
    ignored("zero_optimization.round_robin_gradients", flag, kFlat, "false"),
    ignored(
        "zero_optimization.ignore_unused_parameters", flag,
        "unused parameters are allowed at every stage that shards gradients; ddp_find_unused_parameters detects them",
        "true"),
    ignored("zero_optimization.load_from_fp32_weights", flag, "checkpoints contain the fp32 weights", "true"),
    ignored("zero_optimization.elastic_checkpoint", flag, kAnyWorld, "false"),
    refused("zero_optimization.legacy_stage1", flag, "there is only one implementation of stage 1; remove it", "false"),
    ignored("zero_optimization.memory_efficient_linear", flag, "linear layers keep only their inputs"),
    ignored("zero_optimization.override_module_apply", flag, "modules are not changed", "true"),
    ignored("zero_optimization.pipeline_loading_checkpoint", flag, kAnyWorld, "false"),
    ignored("zero_optimization.log_trace_cache_warnings", flag, "no trace is used", "false"),
    ignored("zero_optimization.enable_sanity_checks", flag, "the checks are always on", "false"),
    ignored("zero_optimization.save_muon_momentum_buffer_in_memory", flag,
            "momentum is stored with all optimizer states", "false"),
    ignored("zero_optimization.grad_hooks", flag,
            "gradients are reduced by hooks while others are computed; overlap_comm controls this", "true"),
    {"zero_optimization.leaf_module", "", Effect::acts, section},
    ignored("zero_optimization.leaf_module.classes", list,
            "transformer_layer_cls_to_wrap selects the modules that are gathered together"),
    ignored("zero_optimization.leaf_module.names", list,
            "transformer_layer_cls_to_wrap selects the modules that are gathered together"),
    ignored("zero_optimization.leaf_module.name_suffixes", list,
            "transformer_layer_cls_to_wrap selects the modules that are gathered together"),
    refused("zero_optimization.zenflow", section, "delayed updates are not implemented; remove it"),

    // deprecated
    acts("zero_optimization.cpu_offload", flag, "cpu_offload", "deprecated: offload_optimizer {device: cpu}"),
    acts("zero_optimization.cpu_offload_param", flag, "cpu_offload", "deprecated: offload_param {device: cpu}"),
    acts("zero_optimization.cpu_offload_params", flag, "cpu_offload", "deprecated: offload_param {device: cpu}"),
    ignored("zero_optimization.cpu_offload_use_pin_memory", flag, kPaged, "false"),
    ignored("zero_optimization.stage3_gather_fp16_weights_on_model_save", flag,
            "the full model is always saved, as safetensors", "true"),
    ignored("allgather_size", whole, kUnits),
};

}  // namespace

std::span<const Row> zero_rows() { return zero_table; }

}  // namespace tessera::config::deepspeed
