// DeepSpeed's keys: acting keys, keys without effect (and why), and refused keys with a remedy.

#include <tessera/config/deepspeed/deepspeed_rows.h>

#include <tessera/config/deepspeed/deepspeed.h>

#include <iterator>
#include <map>

namespace tessera::config {
namespace deepspeed {
namespace {

using enum Kind;

constexpr std::string_view kNeverRead = "DeepSpeed never reads it";
constexpr std::string_view kReport = "report.html and metrics.jsonl show it for every run";
constexpr std::string_view kCheckpoint =
    "checkpoints are safetensors with a manifest that is verified, and are read by any number of processes";
constexpr std::string_view kOneAdam = "one implementation serves every device";
constexpr std::string_view kCuts = "the model's plan determines what tensor parallelism cuts and how it communicates";
constexpr std::string_view kStages = "messages between stages are chosen automatically";
constexpr std::string_view kTrustGoesOn = "OneBitLamb's second moment and trust ratios continue as in Lamb";
constexpr std::string_view kSection = "see the section";
constexpr std::string_view kNoRuns = "the planner computes what DeepSpeed's tuner measures in many runs";
constexpr std::string_view kKeepsBatch = "the planner keeps the global batch of the settings";

constexpr Row table[] = {
    // ---- batch sizes ------------------------------------------------------------------------------------------------
    acts("train_batch_size", whole, "per_device_train_batch_size",
         "= micro batch x accumulation steps x data-parallel processes; missing values are inferred"),
    acts("train_micro_batch_size_per_gpu", whole, "per_device_train_batch_size"),
    acts("gradient_accumulation_steps", whole, "gradient_accumulation_steps"),
    refused("managed_gradient_accumulation", flag,
            "steps end after gradient_accumulation_steps micro-batches; remove it", "true"),

    // ---- optimizer and schedule -------------------------------------------------------------------------------------
    group("optimizer"),
    acts("optimizer.type", text, "optim",
         "Adam, AdamW, Adagrad, Lamb, Lion, SGD, OneBitAdam, OneBitLamb, ZeroOneAdam; Adam is AdamW unless adam_w_mode "
         "is "
         "false"),
    ignored("optimizer.legacy_fusion", flag, "every optimizer is fused over the flat shard", "false"),
    group("optimizer.params"),
    direct("optimizer.params.lr", number, "learning_rate", "learning_rate",
           "absent: DeepSpeed's 1e-3 (Adagrad: 1e-2), unless learning_rate is given"),
    acts("optimizer.params.betas", list, "adam_beta1", "and adam_beta2"),
    acts("optimizer.params.eps", number, "adam_epsilon", "for Adagrad and Lamb: eps in optim_args"),
    direct("optimizer.params.weight_decay", number, "weight_decay", "weight_decay"),
    direct("optimizer.params.momentum", number, "momentum", {}, "SGD"),
    direct("optimizer.params.nesterov", flag, "nesterov", {}, "SGD"),
    acts("optimizer.params.adam_w_mode", flag, "optim", "false: Adam with L2 decay"),
    acts("optimizer.params.var_freeze_step", whole, "grad_compression", "ZeroOneAdam: steps before the compression"),
    ignored("optimizer.params.var_update_scaler", number, "ZeroOneAdam's second moment is updated at every step here"),
    ignored("optimizer.params.local_step_scaler", number, "every step of ZeroOneAdam is exchanged here"),
    ignored("optimizer.params.local_step_clipper", number, "every step of ZeroOneAdam is exchanged here"),
    ignored("optimizer.params.coeff_beta", number, kTrustGoesOn),
    ignored("optimizer.params.factor_max", number, kTrustGoesOn),
    ignored("optimizer.params.factor_min", number, kTrustGoesOn),
    ignored("optimizer.params.factor_threshold", number, kTrustGoesOn),
    acts("optimizer.params.bias_correction", flag, "optim_args"),
    acts("optimizer.params.lr_decay", number, "optim_args", "Adagrad"),
    acts("optimizer.params.initial_accumulator_value", number, "optim_args", "Adagrad"),
    acts("optimizer.params.max_coeff", number, "optim_args", "Lamb: max_trust_ratio"),
    acts("optimizer.params.min_coeff", number, "optim_args", "Lamb: min_trust_ratio"),
    acts("optimizer.params.freeze_step", whole, "grad_compression",
         "OneBitAdam, OneBitLamb: steps before the compression"),
    refused("optimizer.params.max_grad_norm", number,
            "'max_grad_norm' is not supported as an optimizer parameter, please switch to using the deepspeed "
            "parameter 'gradient_clipping'",
            "0"),
    refused("optimizer.params.amsgrad", flag, "AMSGrad is not implemented; remove it", "false"),
    refused("optimizer.params.eps_inside_sqrt", flag, "eps is added to the square root; remove it", "false"),
    refused("optimizer.params.dampening", number, "SGD with dampening is not implemented; remove it", "0"),
    refused("optimizer.params.maximize", flag, "losses are minimised; negate the loss instead", "false"),
    ignored("optimizer.params.torch_adam", anything, kOneAdam),
    ignored("optimizer.params.fp32_optimizer_states", flag,
            "states are fp32; bf16.bf16_optimizer_states makes the moments bfloat16", "true"),
    ignored("optimizer.params.set_grad_none", flag, "gradients are cleared after each step", "true"),
    ignored("optimizer.params.fused", flag, kOneAdam),
    ignored("optimizer.params.foreach", flag, kOneAdam),
    ignored("optimizer.params.capturable", flag, kOneAdam, "false"),
    ignored("optimizer.params.differentiable", flag, kOneAdam, "false"),
    ignored("optimizer.params.cuda_aware", flag, "the backend determines how tensors are sent", "false"),
    ignored("optimizer.params.comm_backend_name", text, "the setting backend decides how tensors travel"),
    group("scheduler"),
    acts("scheduler.type", text, "lr_scheduler_type", "WarmupLR, WarmupDecayLR, WarmupCosineLR, OneCycle, LRRangeTest"),
    group("scheduler.params"),
    acts("scheduler.params.warmup_min_lr", anything, "lr_scheduler_kwargs"),
    acts("scheduler.params.warmup_max_lr", anything, "lr_scheduler_kwargs", "\"auto\": learning_rate"),
    acts("scheduler.params.warmup_num_steps", whole, "lr_scheduler_kwargs", "\"auto\": warmup_steps"),
    acts("scheduler.params.warmup_type", text, "lr_scheduler_kwargs", "log (DeepSpeed's default) or linear"),
    acts("scheduler.params.total_num_steps", whole, "lr_scheduler_kwargs", "\"auto\": all steps of the run"),
    acts("scheduler.params.warmup_min_ratio", number, "lr_scheduler_kwargs"),
    acts("scheduler.params.cos_min_ratio", number, "lr_scheduler_kwargs"),
    acts("scheduler.params.lr_range_test_min_lr", anything, "lr_scheduler_kwargs"),
    acts("scheduler.params.lr_range_test_step_size", whole, "lr_scheduler_kwargs"),
    acts("scheduler.params.lr_range_test_step_rate", number, "lr_scheduler_kwargs"),
    acts("scheduler.params.lr_range_test_staircase", flag, "lr_scheduler_kwargs"),
    acts("scheduler.params.cycle_min_lr", anything, "lr_scheduler_kwargs"),
    acts("scheduler.params.cycle_max_lr", anything, "lr_scheduler_kwargs"),
    acts("scheduler.params.decay_lr_rate", number, "lr_scheduler_kwargs"),
    acts("scheduler.params.cycle_first_step_size", whole, "lr_scheduler_kwargs"),
    acts("scheduler.params.cycle_second_step_size", whole, "lr_scheduler_kwargs"),
    acts("scheduler.params.decay_step_size", whole, "lr_scheduler_kwargs"),
    acts("scheduler.params.cycle_momentum", flag, "lr_scheduler_kwargs"),
    acts("scheduler.params.cycle_min_mom", number, "lr_scheduler_kwargs"),
    acts("scheduler.params.cycle_max_mom", number, "lr_scheduler_kwargs"),
    acts("scheduler.params.decay_mom_rate", number, "lr_scheduler_kwargs"),
    ignored("scheduler.params.cycle_first_stair_count", whole, "DeepSpeed itself ignores it", "0"),
    ignored("scheduler.params.cycle_second_stair_count", whole, "DeepSpeed itself ignores it", "0"),
    refused("scheduler.params.last_batch_iteration", integer,
            "a run continues from a checkpoint with --resume_from_checkpoint", "-1"),
    direct("gradient_clipping", number, "max_grad_norm", "max_grad_norm",
           "absent: 0, with a warning, since DeepSpeed's default has been 1.0 since 0.19.3"),

    // ---- precision --------------------------------------------------------------------------------------------------
    group("fp16"),
    acts("fp16.enabled", flag, "fp16"),
    acts("fp16.loss_scale", number, "loss_scale", "0: dynamic"),
    acts("fp16.initial_scale_power", whole, "initial_scale_power"),
    acts("fp16.loss_scale_window", whole, "loss_scale_window", "absent: DeepSpeed's 1000"),
    acts("fp16.hysteresis", whole, "hysteresis", "absent: DeepSpeed's 2"),
    acts("fp16.consecutive_hysteresis", flag, "consecutive_hysteresis"),
    acts("fp16.min_loss_scale", number, "min_loss_scale"),
    ignored("fp16.auto_cast", flag, "inputs of language models are token ids", "false"),
    refused("fp16.fp16_master_weights_and_grads", flag, "the trained weights stay fp32; remove it", "false"),
    group("bf16"),
    acts("bf16.enabled", flag, "bf16"),
    acts("bf16.bf16_optimizer_states", flag, "bf16_optimizer_states"),
    refused("bf16.bf16_master_weights_and_grads", flag,
            "training bf16 weights without fp32 copies is not implemented (bf16_optimizer_states halves the moments); "
            "remove it",
            "false"),
    ignored("bf16.immediate_grad_update", flag, "gradients reach the shard as soon as they are computed", "false"),
    ignored("bf16.loss_scale", number, kNeverRead),
    ignored("bf16.loss_scale_window", whole, kNeverRead),
    ignored("bf16.hysteresis", whole, kNeverRead),
    ignored("bf16.min_loss_scale", number, kNeverRead),
    ignored("bf16.initial_scale_power", whole, kNeverRead),
    ignored("bf16.check_grad_overflow", flag, "gradients are checked by their norm in every precision"),
    {"bfloat16", "bf16", Effect::acts, section, "older spelling of bf16"},
    group("torch_autocast"),
    acts("torch_autocast.enabled", flag, "bf16", "or fp16, by dtype"),
    acts("torch_autocast.dtype", text, "bf16", "bfloat16 or float16"),
    ignored("torch_autocast.lower_precision_safe_modules", list, "only matrix products use the lower precision"),
    refused("amp", section, "NVIDIA's apex is not supported; use bf16 or fp16", "enabled"),
    group("data_types"),
    ignored("data_types.grad_accum_dtype", text, "gradients are summed in fp32", "fp32|float32|torch.float32"),
    direct("data_types.param_dtype", text, "param_dtype"),
    direct("data_types.buffer_dtype", text, "buffer_dtype"),

    // ---- communication ----------------------------------------------------------------------------------------------
    direct("communication_data_type", text, "reduce_dtype", {}, "absent: gradients are reduced in fp32"),
    ignored("seq_parallel_communication_data_type", text, "activations are sent in their own type", "fp32"),
    acts("prescale_gradients", flag, "gradient_predivide_factor", "true: the number of processes"),
    acts("gradient_predivide_factor", number, "gradient_predivide_factor"),
    refused("gradient_allreduce_op", text,
            "gradients are those of the mean loss; for a sum multiply the learning rate by the number of processes",
            "mean"),
    ignored("sparse_gradients", flag, "gradients of embeddings are sent dense", "false"),
    ignored("disable_allgather", flag, kUnits, "false"),

    // ---- everything else at the top
    // -----------------------------------------------------------------------------------
    direct("dataloader_drop_last", flag, "dataloader_drop_last"),
    ignored("zero_allow_untested_optimizer", flag, "every optimizer works with every stage"),
    ignored("zero_force_ds_cpu_optimizer", flag, kOneAdam),
    ignored("graph_harvesting", flag, "no graphs are captured", "false"),
    ignored("steps_per_print", anything, "log lines come every logging_steps steps"),
    ignored("wall_clock_breakdown", flag, kReport, "false"),
    ignored("memory_breakdown", flag, kReport, "false"),
    ignored("dump_state", flag, "--print_config and report.html show the whole configuration", "false"),
    ignored("log_level", text, "the environment variable TESSERA_LOG sets it"),
    group("timers"),
    group("timers.throughput"),
    ignored("timers.throughput.enabled", flag, kReport, "true"),
    ignored("timers.throughput.synchronized", flag, kReport, "true"),
    ignored("vocabulary_size", whole, "it only made DeepSpeed warn"),
    group("activation_checkpointing"),
    ignored("activation_checkpointing.partition_activations", flag,
            "tensor-parallel ranks keep whole block inputs: --sequence_parallel shards them", "false"),
    ignored("activation_checkpointing.cpu_checkpointing", flag,
            "--gradient_checkpointing_kwargs offload_inputs_to=DIR moves the kept inputs out of memory", "false"),
    ignored("activation_checkpointing.contiguous_memory_optimization", flag,
            "as in DeepSpeed, the section alone does not enable checkpointing: set gradient_checkpointing", "false"),
    ignored("activation_checkpointing.number_checkpoints", anything,
            "as in DeepSpeed, the section alone does not enable checkpointing: set gradient_checkpointing", "false"),
    ignored("activation_checkpointing.synchronize_checkpoint_boundary", flag,
            "as in DeepSpeed, the section alone does not enable checkpointing: set gradient_checkpointing", "false"),
    ignored("activation_checkpointing.profile", flag, "--profile writes a timeline", "false"),
    group("aio"),
    ignored("aio.block_size", whole, kPaged),
    ignored("aio.queue_depth", whole, kPaged),
    ignored("aio.intra_op_parallelism", whole, kPaged),
    ignored("aio.thread_count", whole, kPaged),
    ignored("aio.single_submit", flag, kPaged),
    ignored("aio.overlap_events", flag, kPaged),
    ignored("aio.use_gds", flag, kPaged),
    group("checkpoint"),
    ignored("checkpoint.tag_validation", text, kCheckpoint),
    ignored("checkpoint.load_universal", flag, kCheckpoint),
    ignored("checkpoint.use_node_local_storage", flag, "output_dir is one folder that all hosts see", "false"),
    group("checkpoint.parallel_write"),
    ignored("checkpoint.parallel_write.pipeline_stage", flag, "every process writes its own part", "false"),
    ignored("checkpoint.checkpoint_serialization", flag, kCheckpoint),
    group("checkpoint.writer"),
    ignored("checkpoint.writer.type", text, kCheckpoint),
    ignored("checkpoint.writer.io_buffer_size", whole, kCheckpoint),
    ignored("checkpoint.writer.io_buffer_double", flag, kCheckpoint),
    ignored("checkpoint.writer.show_statistics", flag, kCheckpoint),
    ignored("checkpoint.writer.data_parallel", text, kCheckpoint),
    direct("checkpoint.writer.decoupled", flag, "async_save"),
    ignored("checkpoint.writer.io_multiplier", whole, kCheckpoint),
    ignored("nebula", section, kCheckpoint, "enabled"),
    ignored("datastates_ckpt", section, kCheckpoint, "enabled"),

    // ---- monitors and profilers
    // -----------------------------------------------------------------------------------------
    group("tensorboard"),
    acts("tensorboard.enabled", flag, "report_to"),
    acts("tensorboard.output_path", text, "logging_dir", "with job_name below it"),
    acts("tensorboard.job_name", text, "logging_dir"),
    ignored("csv_monitor", section, "--report_to csv writes metrics.csv", "enabled"),
    ignored("csv_monitor.enabled", flag, kSection),
    ignored("csv_monitor.output_path", text, kSection),
    ignored("csv_monitor.job_name", text, kSection),
    ignored("wandb", section, "metrics are written to metrics.jsonl and TensorBoard events", "enabled"),
    ignored("wandb.enabled", flag, kSection),
    ignored("wandb.group", text, kSection),
    ignored("wandb.team", text, kSection),
    ignored("wandb.project", text, kSection),
    ignored("comet", section, "metrics are written to metrics.jsonl and TensorBoard events", "enabled"),
    ignored("comet.enabled", flag, kSection),
    ignored("comet.samples_log_interval", whole, kSection),
    ignored("comet.project", text, kSection),
    ignored("comet.workspace", text, kSection),
    ignored("comet.api_key", text, kSection),
    ignored("comet.experiment_name", text, kSection),
    ignored("comet.experiment_key", text, kSection),
    ignored("comet.online", flag, kSection),
    ignored("comet.mode", text, kSection),
    ignored("comms_logger", section, "every collective is recorded, and report.html has the table", "enabled"),
    ignored("comms_logger.enabled", flag, kSection),
    ignored("comms_logger.verbose", flag, kSection),
    ignored("comms_logger.prof_all", flag, kSection),
    ignored("comms_logger.debug", flag, kSection),
    ignored("comms_logger.prof_ops", list, kSection),
    ignored("flops_profiler", section, "report.html has the share of the peak, and --profile writes a timeline",
            "enabled"),
    ignored("flops_profiler.enabled", flag, kSection),
    ignored("flops_profiler.recompute_fwd_factor", number, kSection),
    ignored("flops_profiler.profile_step", whole, kSection),
    ignored("flops_profiler.module_depth", integer, kSection),
    ignored("flops_profiler.top_modules", whole, kSection),
    ignored("flops_profiler.detailed", flag, kSection),
    ignored("flops_profiler.output_file", text, kSection),
    ignored("eigenvalue", section, "only DeepSpeed's quantization uses eigenvalues", "enabled"),

    // ---- other kinds of parallelism, and methods that change the training
    // ------------------------------------------------
    group("pipeline"),
    acts("pipeline.stages", whole, "pp_size", "0: 1"),
    ignored("pipeline.partition", text, "stages have equal numbers of blocks; pipeline_layout changes that",
            "best|uniform|auto"),
    ignored("pipeline.seed_layers", flag, "random numbers depend only on the seed and the step", "false"),
    ignored("pipeline.activation_checkpoint_interval", whole, "gradient_checkpointing determines what is kept", "0"),
    ignored("pipeline.pipe_partitioned", flag, kStages),
    ignored("pipeline.grad_partitioned", flag, kStages),
    group("tensor_parallel"),
    acts("tensor_parallel.autotp_size", whole, "tp_size", "0: 1"),
    acts("tensor_parallel.tp_size", whole, "tp_size", "0: 1"),
    group("tensor_parallel.tp"),
    acts("tensor_parallel.tp.tp_size", whole, "tp_size", "0: 1"),
    ignored("tensor_parallel.tp.tp_grain_size", whole, kCuts),
    ignored("tensor_parallel.preset_model", text, kCuts),
    ignored("tensor_parallel.tp_overlap_comm", flag, kCuts, "false"),
    ignored("tensor_parallel.partition_config", anything, kCuts),
    ignored("tensor_parallel.dtype", text, "param_dtype determines it"),
    ignored("tensor_parallel.keep_module_on_host", flag, kCuts, "false"),
    refused("expert_parallel", section, "the experts of AutoEP are not implemented; use --ep_size", "enabled"),
    acts("sequence_parallel_size", whole, "cp_size", "with cp_comm_type a2a"),
    ignored("use_data_before_expert_parallelism", flag, "groups of experts are derived from --ep_size", "false"),
    ignored("compile", section, "operations are compiled ahead of time", "deepcompile"),
    group("autotuning"),
    acts("autotuning.enabled", flag, "auto_strategy",
         "instead of tuning runs, the planner computes stage, mesh and micro-batch (docs/planning.md)"),
    acts("autotuning.metric", text, "auto_strategy", "throughput; others are refused"),
    acts("autotuning.min_train_micro_batch_size_per_gpu", whole, "auto_min_batch_size",
         "if train_micro_batch_size_per_gpu is \"auto\" or absent; 1"),
    acts("autotuning.max_train_micro_batch_size_per_gpu", whole, "auto_max_batch_size", "the same; 1024"),
    refused("autotuning.mp_size", whole, "use tensor_parallel.autotp_size, or leave it to the planner", "1"),
    ignored("autotuning.max_train_batch_size", whole, kKeepsBatch),
    ignored("autotuning.min_train_batch_size", whole, kKeepsBatch, "1"),
    ignored("autotuning.fast", flag, kNoRuns),
    ignored("autotuning.results_dir", text, kNoRuns),
    ignored("autotuning.exps_dir", text, kNoRuns),
    ignored("autotuning.overwrite", flag, kNoRuns),
    ignored("autotuning.start_profile_step", whole, kNoRuns),
    ignored("autotuning.end_profile_step", whole, kNoRuns),
    ignored("autotuning.start_step", whole, kNeverRead),
    ignored("autotuning.end_step", whole, kNeverRead),
    ignored("autotuning.metric_path", text, kNoRuns),
    ignored("autotuning.tuner_type", text, kNoRuns),
    ignored("autotuning.tuner_early_stopping", whole, kNoRuns),
    ignored("autotuning.tuner_num_trials", whole, kNoRuns),
    ignored("autotuning.num_tuning_micro_batch_sizes", whole, kNoRuns),
    ignored("autotuning.arg_mappings", anything, kNoRuns),
    ignored("autotuning.model_info", anything, "the model's config.json determines it"),
    ignored("autotuning.model_info_path", text, "the model's config.json determines it"),
    refused("elasticity", section,
            "batch sizes that depend on the number of processes are not implemented; set them, and use "
            "--resume_from_checkpoint to resume with any number of processes",
            "enabled"),
    refused("curriculum_learning", section,
            "sampling by difficulty and dropping of tokens are not implemented; remove it", "enabled"),
    acts("data_efficiency", anything, "data_efficiency",
         "data_routing.random_ltd and seed; data_sampling must be disabled"),
    acts("progressive_layer_drop", anything, "progressive_layer_drop"),
    // The engine stores it for model code that asks for it, such as bing_bert's with its own flag.
    ignored("sparse_attention", section,
            "sparse attention is not implemented; in DeepSpeed it also applies only to models whose own code reads the "
            "section"),
    acts("compression_training", anything, "compression_training",
         "weight_quantization, activation_quantization and layer_reduction; pruning must be disabled"),
    // DeepSpeed decides by compression_training alone whether weights are quantized.
    ignored("quantize_training", section,
            "it has no effect: DeepSpeed itself has ignored this older section since 0.7; use bits, period, "
            "offset and groups of compression_training.weight_quantization",
            "enabled*"),
    refused("weight_quantization", section,
            "quantizing weights when a model is created (quantized_initialization, post_init_quant) is not "
            "implemented; use --load_in_4bit or --load_in_8bit for frozen weights with LoRA, or remove it",
            "enabled*"),
    ignored("cuda_visible_devices", anything, kNeverRead),
    ignored("comms_config", anything, kNeverRead),
    ignored("monitor_config", anything, kNeverRead),
    refused("hybrid_engine", section, "training and generation do not share an engine; remove it", "enabled"),
};

}  // namespace

std::span<const Row> zero_rows();  // deepspeed_zero_rows.cpp

std::span<const Row> rows() {
  static const std::vector<Row> all = [] {
    std::vector<Row> both(std::begin(table), std::end(table));
    const auto zero = zero_rows();
    both.insert(both.end(), zero.begin(), zero.end());
    return both;
  }();
  return all;
}

const Row* find_row(std::string_view path) {
  static const std::map<std::string_view, const Row*> index = [] {
    std::map<std::string_view, const Row*> by_key;
    for (const Row& row : rows()) by_key.emplace(row.key, &row);
    return by_key;
  }();
  const auto found = index.find(path);
  return found == index.end() ? nullptr : found->second;
}

std::vector<std::string> names_below(std::string_view section) {
  std::vector<std::string> names;
  for (const Row& row : rows()) {
    const std::size_t dot = row.key.rfind('.');
    const std::string_view above = dot == std::string_view::npos ? std::string_view{} : row.key.substr(0, dot);
    if (above == section) names.emplace_back(row.key.substr(above.empty() ? 0 : dot + 1));
  }
  return names;
}

std::vector<std::string> paths_of(std::string_view name) {
  std::vector<std::string> paths;
  for (const Row& row : rows())
    if (const std::size_t dot = row.key.rfind('.');
        (dot == std::string_view::npos ? row.key : row.key.substr(dot + 1)) == name)
      paths.emplace_back(row.key);
  return paths;
}

}  // namespace deepspeed

std::span<const KeyRow> deepspeed_rows() {
  static const std::vector<KeyRow> told = [] {
    std::vector<KeyRow> out;
    for (const deepspeed::Row& row : deepspeed::rows())
      if (row.kind != deepspeed::Kind::section || row.effect != Effect::acts || !row.setting.empty())
        out.push_back({row.key, row.setting, row.effect, row.why});
    return out;
  }();
  return told;
}

}  // namespace tessera::config
