#include <tessera/faces/trainer_settings.h>

#include <tessera/base/error.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>
#include <tessera/faces/training_ranks.h>

#include <algorithm>
#include <array>

namespace tessera::faces {

std::span<const std::string_view> trainer_settings() {
  static constexpr auto names = std::to_array<std::string_view>(
      {// sources of settings
       "config", "config_file", "deepspeed", "args_file", "compat", "unknown",
       // data
       "train_sampling_strategy", "group_by_length", "data_seed", "dataloader_drop_last",
       // optimisation
       "max_steps", "num_train_epochs", "per_device_train_batch_size", "per_device_eval_batch_size",
       "gradient_accumulation_steps", "optim", "optim_args", "learning_rate", "learning_rate_rule",
       "learning_rate_batch_size", "lr_scheduler_type", "lr_scheduler_kwargs", "warmup_steps", "warmup_ratio",
       "weight_decay", "adam_beta1", "adam_beta2", "adam_epsilon", "momentum", "nesterov", "label_smoothing_factor",
       "max_grad_norm", "average_tokens_across_devices", "seed", "bf16", "fp16", "bf16_full_eval", "fp16_full_eval",
       "loss_scale", "initial_scale_power", "loss_scale_window", "min_loss_scale", "hysteresis",
       "consecutive_hysteresis", "gradient_predivide_factor", "bf16_optimizer_states", "stochastic_rounding",
       "gradient_checkpointing", "gradient_checkpointing_kwargs",  // own modules: a warning names the function to call
       "fp8_recipe", "fp8_amax_history_len", "fp8_amax_compute_algo", "fp8_margin", "num_layers_at_start_in_bf16",
       "num_layers_at_end_in_bf16", "full_determinism",
       // processes
       "num_processes", "backend", "device", "threads_per_process", "ddp_bucket_cap_mb", "ddp_find_unused_parameters",
       "ddp_broadcast_buffers", "ddp_timeout", "deterministic_reduce", "logical_shards", "tp_size", "sequence_parallel",
       // sharding
       "fsdp", "fsdp_config", "zero_stage", "strategy", "shard_group_size", "cpu_offload", "offload_folder",
       "auto_wrap_policy", "transformer_layer_cls_to_wrap", "min_num_params", "wrap_pattern", "ignored_modules",
       "backward_prefetch", "forward_prefetch", "limit_all_gathers", "reshard_after_forward", "persistence_threshold",
       "reduce_bucket_size", "overlap_comm", "sync_module_states", "param_dtype", "reduce_dtype", "buffer_dtype",
       "data_dependent", "grad_compression",
       // output
       "output_dir", "resume_from_checkpoint", "logging_steps", "logging_first_step", "logging_strategy",
       "save_strategy", "save_steps", "save_total_limit", "save_state_dict_type", "async_save", "async_save_when_busy",
       "ignore_data_skip", "eval_strategy", "eval_steps", "eval_on_start", "eval_delay", "load_best_model_at_end",
       "metric_for_best_model", "greater_is_better", "disable_tqdm", "nan_policy", "nan_skip_limit",
       "logging_nan_inf_filter", "save_only_model"});
  return names;
}

namespace {

constexpr std::string_view rows = "the Trainer's steps all have the same number of rows",
                           embeddings = "its models know which parameters are embeddings",
                           gradients = "its loop sees gradients before they are reduced",
                           restarts = "its runs are restarted from there";
struct Refused {
  std::string_view setting, why;
};
constexpr auto refused = std::to_array<Refused>(
    {{"tokens_per_batch", rows},
     {"batch_size_schedule", rows},
     {"balance_batches", rows},
     {"decoupled_lr", embeddings},
     {"decoupled_min_lr", embeddings},
     {"mm_projector_lr", "its models know which part is a projector"},
     {"neftune_noise_alpha", "its models add the noise; add it in your module's forward"},
     {"preference_loss", "its rows are pairs of answers; compute such a loss in TrainerOptions::loss"},
     {"gradient_noise_scale", gradients},
     {"exit_duration_in_mins", "set should_save and should_training_stop of TrainerControl instead"},
     {"checkpoint_in_memory", restarts},
     {"check_replicas_steps", "call require_same_bits() of parallel/replicas.h in a callback instead"}});

}  // namespace

std::vector<std::string_view> refused_by_trainer() {
  std::vector<std::string_view> names = {"fp8_format", "compression_training", "progressive_layer_drop",
                                         "data_efficiency"};  // refused for the program's own module
  for (const Refused& row : refused) names.push_back(row.setting);
  for (const RefusedAxis& axis : refused_axes()) names.push_back(axis.setting);
  return names;
}

void check_trainer_settings(const RunConfig& config) {
  check_axes(config.parallel);
  const RunConfig defaults;
  for (const auto& [name, why] : refused) {
    const config::Field& field = *config::find_field(name);
    if (dump_json(field.get(config)) != dump_json(field.get(defaults)))
      throw InputError(concat("Trainer: --", name, " is for `tessera train`: ", why, "; remove it"));
  }
}

std::vector<std::string> without_effect_on_trainer(const config::Resolved& given) {
  const std::span<const std::string_view> followed = trainer_settings();
  const std::vector<std::string_view> refused_names = refused_by_trainer();
  const RunConfig defaults;
  std::vector<std::string> names;
  for (const config::Field& field : config::fields()) {
    if (std::find(followed.begin(), followed.end(), field.name) != followed.end()) continue;
    if (std::find(refused_names.begin(), refused_names.end(), field.name) != refused_names.end()) continue;
    if (!given.origin(field.name).is_given()) continue;
    if (dump_json(field.get(given.values)) != dump_json(field.get(defaults))) names.emplace_back(field.name);
  }
  if (given.values.data.train_sampling_strategy == SamplingStrategy::group_by_length)
    names.emplace_back("train_sampling_strategy group_by_length");
  if (given.values.data.train_sampling_strategy == SamplingStrategy::group_by_modality_length)
    names.emplace_back("train_sampling_strategy group_by_modality_length");
  return names;
}

}  // namespace tessera::faces
