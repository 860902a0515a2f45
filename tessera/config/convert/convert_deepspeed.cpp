// The writer of DeepSpeed's JSON.

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/config/convert/convert_writers.h>
#include <tessera/config/core/mesh.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/rules/named_parameters.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace tessera::config {
namespace {

struct Word {
  std::string_view ours, theirs;
};
constexpr std::array optimizers{Word{"adamw", "AdamW"},     Word{"adam", "Adam"}, Word{"sgd", "SGD"},
                                Word{"adagrad", "Adagrad"}, Word{"lion", "Lion"}, Word{"lamb", "Lamb"}};
constexpr std::array schedules{Word{"warmup_lr", "WarmupLR"}, Word{"warmup_decay_lr", "WarmupDecayLR"},
                               Word{"warmup_cosine_lr", "WarmupCosineLR"}, Word{"one_cycle", "OneCycle"},
                               Word{"lr_range_test", "LRRangeTest"}};
/// Names of the optim_args of Adam, Adagrad and Lamb.
constexpr std::array parameters{Word{"eps", "eps"},
                                Word{"lr_decay", "lr_decay"},
                                Word{"initial_accumulator_value", "initial_accumulator_value"},
                                Word{"min_trust_ratio", "min_coeff"},
                                Word{"max_trust_ratio", "max_coeff"},
                                Word{"bias_correction", "bias_correction"}};

template <std::size_t n>
std::optional<std::string> translated(const std::array<Word, n>& words, std::string_view ours) {
  for (const Word& word : words)
    if (word.ours == ours) return std::string(word.theirs);
  return std::nullopt;
}

/// The parameters in optim_args under DeepSpeed's names; nullopt if one of them has none, or if DeepSpeed's Lamb
/// differs: it scales every parameter, and always has eps and an upper bound. Its default lower bound is 0.01.
std::optional<Value> named_parameters(const OptimizationConfig& o) {
  Value out = Value::make_object();
  const Value given = Value::make_object(optimizer_parameters(o));
  for (const auto& [name, value] : given.members()) {
    if (o.optim == OptimizerKind::lamb && name == "adapt_undecayed" && value.kind() == Value::Kind::boolean &&
        value.as_bool())
      continue;
    const auto theirs = translated(parameters, name);
    if (!theirs) return std::nullopt;
    out.set(*theirs, value);
  }
  if (o.optim == OptimizerKind::lamb && given.find("min_trust_ratio") == nullptr) out.set("min_coeff", Value::of(0.0));
  const bool same_lamb = given.find("adapt_undecayed") != nullptr && given.find("eps") != nullptr &&
                         given.find("max_trust_ratio") != nullptr;
  return o.optim == OptimizerKind::lamb && !same_lamb ? std::nullopt : std::optional(std::move(out));
}

Value optimizer_of(Plan& plan) {
  const OptimizationConfig& o = plan.config.optimization;
  const auto type = translated(optimizers, word_of(o.optim));
  const bool adam = o.optim == OptimizerKind::adamw || o.optim == OptimizerKind::adam;
  bool has_parameters = adam || o.optim == OptimizerKind::adagrad || o.optim == OptimizerKind::lamb;
  auto named = has_parameters ? named_parameters(o) : std::optional(Value::make_object());
  if (adam && !named) {  // Adam's parameters have settings of their own
    has_parameters = false;
    named = Value::make_object();
  }
  if (!type || !named) return {};
  plan.take("optim");
  Value params = Value::make_object();
  const auto always = [&](const char* key, const char* setting) {
    plan.take(setting);
    params.set(key, plan.value(setting));
  };
  always("lr", "learning_rate");
  if (o.optim != OptimizerKind::sgd && o.optim != OptimizerKind::adagrad) {
    plan.take("adam_beta1");
    plan.take("adam_beta2");
    params.set("betas", Value::make_array({Value::of(o.adam_beta1), Value::of(o.adam_beta2)}));
  }
  if (adam) always("eps", "adam_epsilon");
  always("weight_decay", "weight_decay");
  if (o.optim == OptimizerKind::sgd) {
    always("momentum", "momentum");
    always("nesterov", "nesterov");
  }
  if (o.optim == OptimizerKind::adam) params.set("adam_w_mode", Value::of(false));
  if (has_parameters) plan.take("optim_args");
  for (const auto& [name, value] : named->members()) params.set(name, value);
  return Value::make_object({{"type", Value::of(*type)}, {"params", std::move(params)}});
}

Value scheduler_of(Plan& plan) {
  const OptimizationConfig& o = plan.config.optimization;
  const auto type = translated(schedules, word_of(o.lr_scheduler_type));
  if (!type) return {};
  plan.take("lr_scheduler_type");
  plan.take("lr_scheduler_kwargs");
  return Value::make_object({{"type", Value::of(*type)}, {"params", Value::make_object(schedule_parameters(o))}});
}

Value zero_of(Plan& plan) {
  const ShardingConfig& s = plan.config.sharding;
  const int stage = row_of(s.strategy).zero_stage();
  if (!same_strategy(s.strategy, zero_strategy(stage))) return {};
  const bool third = stage == 3;
  plan.take("strategy");
  Value zero = Value::make_object({{"stage", Value::of(stage)}});
  plan.take("overlap_comm");
  zero.set("overlap_comm", Value::of(s.overlap_comm));
  if (plan.take("reduce_bucket_size")) {
    plan.take("ddp_bucket_cap_mb");
    zero.set("reduce_bucket_size", Value::of(s.reduce_bucket_size));
  }
  if (third) {
    plan.take("persistence_threshold");
    zero.set("stage3_param_persistence_threshold", Value::of(s.persistence_threshold));
  }
  const bool optimizer = offloads_optimizer(s.cpu_offload), params = offloads_parameters(s.cpu_offload);
  if ((stage > 0 || !optimizer) && (third || !params)) {
    plan.take("cpu_offload");
    const bool folder = (optimizer || params) && plan.take("offload_folder");
    const auto place = [&] {
      return folder ? Value::make_object({{"device", Value::of("nvme")}, {"nvme_path", Value::of(s.offload_folder)}})
                    : Value::make_object({{"device", Value::of("cpu")}});
    };
    if (optimizer) zero.set("offload_optimizer", place());
    if (params) zero.set("offload_param", place());
  }
  return zero;
}

/// DeepSpeed's sequence parallelism is Ulysses; it has no keys for rings or schedules.
void add_mesh(Plan& plan, Value& out) {
  const ParallelConfig& p = plan.config.parallel;
  if (plan.take("pp_size")) out.set("pipeline", Value::make_object({{"stages", Value::of(p.pp_size)}}));
  if (plan.take("tp_size")) out.set("tensor_parallel", Value::make_object({{"autotp_size", Value::of(p.tp_size)}}));
  if (p.cp_size == 1 || p.cp_comm_type != layout::ContextMethod::a2a) return;
  plan.take("cp_size");
  plan.take("cp_comm_type");
  out.set("sequence_parallel_size", Value::of(p.cp_size));
}

Value fp16_of(Plan& plan, bool automatic) {
  Value fp16 = Value::make_object({{"enabled", automatic ? Value::of("auto") : Value::of(true)}});
  if (!automatic) plan.take("fp16");
  for (const char* name : {"loss_scale", "initial_scale_power", "loss_scale_window", "hysteresis",
                           "consecutive_hysteresis", "min_loss_scale"}) {
    plan.take(name);
    fp16.set(name, plan.value(name));
  }
  return fp16;
}

}  // namespace

Value deepspeed_json(Plan& plan, bool automatic) {
  const OptimizationConfig& o = plan.config.optimization;
  Value out = Value::make_object();
  const auto always = [&](const char* key, const char* setting) {
    if (!automatic) plan.take(setting);
    out.set(key, automatic ? Value::of("auto") : plan.value(setting));
  };
  if (const std::int64_t processes = plan.config.parallel.num_processes; processes > 0 && !automatic)
    out.set("train_batch_size", Value::of(data_parallel_ranks(plan.config.parallel, processes) *
                                          o.per_device_train_batch_size * o.gradient_accumulation_steps));
  if (!automatic) add_mesh(plan, out);
  always("train_micro_batch_size_per_gpu", "per_device_train_batch_size");
  always("gradient_accumulation_steps", "gradient_accumulation_steps");
  always("gradient_clipping", "max_grad_norm");
  if (!automatic)
    if (Value optimizer = optimizer_of(plan); !optimizer.is_null()) out.set("optimizer", std::move(optimizer));
  if (Value scheduler = scheduler_of(plan); !scheduler.is_null()) out.set("scheduler", std::move(scheduler));
  if (o.fp16) out.set("fp16", fp16_of(plan, automatic));
  if (o.bf16) {
    if (!automatic) plan.take("bf16");
    Value bf16 = Value::make_object({{"enabled", automatic ? Value::of("auto") : Value::of(true)}});
    if (plan.take("bf16_optimizer_states")) bf16.set("bf16_optimizer_states", Value::of(true));
    out.set("bf16", std::move(bf16));
  }
  if (plan.take("gradient_predivide_factor"))
    out.set("gradient_predivide_factor", Value::of(o.gradient_predivide_factor));
  if (plan.take("reduce_dtype"))
    out.set("communication_data_type", Value::of(word_of(plan.config.sharding.reduce_dtype)));
  if (!automatic && plan.take("dataloader_drop_last"))
    out.set("dataloader_drop_last", Value::of(plan.config.data.dataloader_drop_last));
  if (plan.has("param_dtype") || plan.has("buffer_dtype")) {
    Value types = Value::make_object();
    for (const char* name : {"param_dtype", "buffer_dtype"})
      if (plan.take(name)) types.set(name, plan.value(name));
    out.set("data_types", std::move(types));
  }
  if (Value zero = zero_of(plan); !zero.is_null()) out.set("zero_optimization", std::move(zero));
  if (plan.take("compression_training"))
    out.set("compression_training", parse_json(o.compression_training, "compression_training"));
  if (plan.take("progressive_layer_drop"))
    out.set("progressive_layer_drop", parse_json(o.progressive_layer_drop, "progressive_layer_drop"));
  if (plan.take("data_efficiency")) out.set("data_efficiency", parse_json(o.data_efficiency, "data_efficiency"));
  return out;
}

Converted to_deepspeed(const Resolved& resolved) {
  Plan plan(resolved);
  Value file = deepspeed_json(plan, false);
  return {std::move(file), plan.lost("DeepSpeed's JSON has no key for it")};
}

}  // namespace tessera::config
