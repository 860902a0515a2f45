// Every row of the table of DeepSpeed's keys acts as documented: a file with that key, and its result.

#include "deepspeed_cases.h"

#include <tessera/config/core/fields.h>
#include <tessera/config/deepspeed/deepspeed_rows.h>

#include <set>

namespace tessera::config {
namespace {

using deepspeed::Kind;
using deepspeed::Row;

/// {"a": {"b": VALUE}}.
std::string nested(std::string_view key, const std::string& value) {
  std::string out = value;
  for (std::size_t dot; (dot = key.rfind('.')) != std::string_view::npos; key = key.substr(0, dot))
    out = concat("{\"", key.substr(dot + 1), "\": ", out, "}");
  return concat("{\"", key, "\": ", out, "}");
}

/// A value that has an effect.
std::string example(const Row& row) {
  const auto harmless = [&](std::string_view value) {
    for (const std::string& one : split(row.harmless, '|'))
      if (one == value) return true;
    return false;
  };
  switch (row.kind) {
    case Kind::flag:
      return harmless("true") ? "false" : "true";
    case Kind::whole:
    case Kind::integer:
    case Kind::number:
    case Kind::anything:
      return harmless("3") ? "4" : "3";
    case Kind::text:
      return "\"sum\"";
    case Kind::list:
      return "[\"x\"]";
    case Kind::section:
      return row.harmless.empty() ? "{\"a\": 1}"
                                  : concat("{\"", row.harmless.substr(0, row.harmless.find('*')), "\": true}");
  }
  return {};
}

/// The section whose switch must be on before a key inside it has an effect.
const Row* section_of(const Row& row) {
  const std::size_t dot = row.key.rfind('.');
  return dot == std::string_view::npos ? nullptr : deepspeed::find_row(row.key.substr(0, dot));
}

// Other keys that `row` needs to have an effect: an offload device for offload_*, a cycle for the scheduler's stairs,
// etc.
std::string context(const Row& row) {
  const std::string key(row.key), value = example(row);
  for (const char* section : {"zero_optimization.offload_optimizer", "zero_optimization.offload_param"})
    if (key.starts_with(concat(section, ".")))
      return nested(section,
                    concat("{\"device\": \"cpu\", \"", key.substr(std::string(section).size() + 1), "\": ", value, "}"))
          .replace(1, std::string("\"zero_optimization\": {").size(), "\"zero_optimization\": {\"stage\": 3, ");
  for (const auto& [word, type] :
       {std::pair("torch_adam", "Adam"), std::pair("fp32_optimizer_states", "Adam"),
        std::pair("cuda_aware", "OneBitAdam"), std::pair("comm_backend_name", "OneBitAdam"),
        std::pair("var_update_scaler", "ZeroOneAdam"), std::pair("local_step_scaler", "ZeroOneAdam"),
        std::pair("local_step_clipper", "ZeroOneAdam"), std::pair("coeff_beta", "OneBitLamb"),
        std::pair("factor_max", "OneBitLamb"), std::pair("factor_min", "OneBitLamb"),
        std::pair("factor_threshold", "OneBitLamb")})
    if (key == concat("optimizer.params.", word))
      return concat(R"({"optimizer": {"type": ")", type, R"(", "params": {")", word, "\": ", value, "}}}");
  if (key.starts_with("optimizer.")) {
    const bool inner = key.starts_with("optimizer.params.");
    return inner ? concat(R"({"optimizer": {"type": "SGD", "params": {")", key.substr(17), "\": ", value, "}}}")
                 : concat(R"({"optimizer": {"type": "SGD", ")", key.substr(10), "\": ", value, "}}");
  }
  if (key.starts_with("autotuning."))
    return concat(R"({"autotuning": {"enabled": true, ")", key.substr(11), "\": ", value, "}}");
  if (key.starts_with("scheduler.params."))
    return concat(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1, "cycle_max_lr": 1, ")",
                  key.substr(17), "\": ", value, "}}}");
  return nested(key, value);
}

TEST(DeepspeedRows, IgnoredKeysAreNamedWithTheReason) {
  int seen = 0;
  for (const Row& row : deepspeed::rows()) {
    if (row.effect != Effect::ignored) continue;
    const Row* above = section_of(row);
    if (above != nullptr && above->effect != Effect::acts) {  // covered by the section's own row
      const Outcome off = read_case(nested(row.key, example(row)));
      EXPECT_EQ(off.problems, Words{}) << row.key;
      if (row.key.ends_with(".enabled")) continue;
      EXPECT_EQ(off.notes, Words{}) << row.key;
      continue;
    }
    const std::string json = context(row);
    const Outcome outcome = read_case(json);
    EXPECT_EQ(outcome.problems, Words{}) << json;
    const std::string notes = join(outcome.notes, " | ");
    EXPECT_NE(notes.find(concat(row.key, " (line 1)")), std::string::npos) << json << "\n" << notes;
    EXPECT_NE(notes.find(row.why), std::string::npos) << json << "\n" << notes;
    ++seen;
  }
  EXPECT_GT(seen, 90);
}

TEST(DeepspeedRows, RefusedKeysAreProblemsWithReasonAndRemedy) {
  int seen = 0;
  for (const Row& row : deepspeed::rows()) {
    if (row.effect != Effect::refused) continue;
    const std::string json = context(row);
    const Outcome outcome = read_case(json);
    ASSERT_EQ(outcome.problems.size(), 1u) << json << "\n" << join(outcome.problems, "\n");
    EXPECT_TRUE(outcome.problems.front().starts_with("deepspeed:1:")) << outcome.problems.front();
    EXPECT_TRUE(outcome.problems.front().ends_with(concat(": ", row.key, ": ", row.why))) << outcome.problems.front();
    ++seen;
  }
  EXPECT_GT(seen, 20);
}

TEST(DeepspeedRows, WhatIsHarmlessIsNotMentioned) {
  for (const Row& row : deepspeed::rows()) {
    if (row.effect == Effect::acts || row.kind == Kind::section || row.harmless.empty()) continue;
    for (const std::string& value : split(row.harmless, '|')) {
      const bool text = row.kind == Kind::text || value == "auto";
      const Outcome outcome = read_case(nested(row.key, text ? concat("\"", value, "\"") : value));
      EXPECT_EQ(outcome.notes, Words{}) << row.key << " " << value;
      if (row.key.starts_with("optimizer.params.") || row.key.starts_with("scheduler.params."))
        continue;  // no optimizer or scheduler type accepts these
      EXPECT_EQ(outcome.problems, Words{}) << row.key << " " << value;
    }
  }
}

struct ActingRow {
  const char *key, *json;
  Texts settings;  ///< all of these must be set; others may be set too
};

// One file per acting row. {} settings: the row states when it has no effect.
const std::vector<ActingRow>& acting_rows() {
  static const auto cycle = [](const char* pair) {
    return concat(R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1, "cycle_max_lr": 2, )", pair,
                  "}}}");
  };
  static const std::string first = cycle(R"("cycle_first_step_size": 9)"),
                           second = cycle(R"("cycle_second_step_size": 9)"), size = cycle(R"("decay_step_size": 9)"),
                           rate = cycle(R"("decay_lr_rate": 0.5)"), momentum = cycle(R"("cycle_momentum": true)"),
                           least = cycle(R"("cycle_min_mom": 0.5)"), most = cycle(R"("cycle_max_mom": 0.5)"),
                           decay = cycle(R"("decay_mom_rate": 0.5)");
  const auto cycled = [](const char* pair) {
    return Texts{{"lr_scheduler_kwargs", concat(R"({"cycle_min_lr":1.0,"cycle_max_lr":2.0,)", pair, "}")}};
  };
  static const std::vector<ActingRow> all = {
      {"train_batch_size", R"({"train_batch_size": 6})", {{"per_device_train_batch_size", "6"}}},
      {"compression_training",
       R"({"compression_training": {"activation_quantization": {"shared_parameters": {"enabled": true},
           "different_groups": {"aq1": {"params": {"bits": 8}}}}}})",
       {{"compression_training",
         R"({"activation_quantization":{"shared_parameters":{"enabled":true},"different_groups":{"aq1":{"params":)"
         R"({"bits":8}}}}})"}}},
      {"progressive_layer_drop",
       R"({"progressive_layer_drop": {"enabled": true, "theta": 0.5}})",
       {{"progressive_layer_drop", R"({"enabled":true,"theta":0.5})"}}},
      {"data_efficiency",
       R"({"data_efficiency": {"enabled": true, "data_routing": {"enabled": true, "random_ltd": {"enabled": true,
           "total_layer_num": 2, "random_ltd_layer_num": 1, "random_ltd_layer_id": [1], "model_type": "decoder",
           "hidden_state_order": "batch_seq_dim", "random_ltd_schedule": {"min_value": 8, "max_value": 16,
           "schedule_type": "fixed_linear", "schedule_config": {"require_steps": 4, "seq_per_step": 8}}}}}})",
       {{"data_efficiency",
         R"({"enabled":true,"data_routing":{"enabled":true,"random_ltd":{"enabled":true,"total_layer_num":2,)"
         R"("random_ltd_layer_num":1,"random_ltd_layer_id":[1],"model_type":"decoder",)"
         R"("hidden_state_order":"batch_seq_dim","random_ltd_schedule":{"min_value":8,"max_value":16,)"
         R"("schedule_type":"fixed_linear","schedule_config":{"require_steps":4,"seq_per_step":8}}}}})"}}},
      {"autotuning.enabled", R"({"autotuning": {"enabled": true}})", {{"auto_strategy", "true"}}},
      {"autotuning.metric",
       R"({"autotuning": {"enabled": true, "metric": "throughput"}})",
       {{"auto_strategy", "true"}}},
      {"autotuning.min_train_micro_batch_size_per_gpu",
       R"({"autotuning": {"enabled": true, "min_train_micro_batch_size_per_gpu": 2}})",
       {{"auto_min_batch_size", "2"}, {"auto_max_batch_size", "1024"}}},
      {"autotuning.max_train_micro_batch_size_per_gpu",
       R"({"autotuning": {"enabled": true, "max_train_micro_batch_size_per_gpu": 16}})",
       {{"auto_min_batch_size", "1"}, {"auto_max_batch_size", "16"}}},
      {"pipeline.stages", R"({"pipeline": {"stages": 4}})", {{"pp_size", "4"}}},
      {"tensor_parallel.autotp_size", R"({"tensor_parallel": {"autotp_size": 4}})", {{"tp_size", "4"}}},
      {"tensor_parallel.tp_size", R"({"tensor_parallel": {"tp_size": 4}})", {{"tp_size", "4"}}},
      {"tensor_parallel.tp.tp_size", R"({"tensor_parallel": {"tp": {"tp_size": 4}}})", {{"tp_size", "4"}}},
      {"sequence_parallel_size", R"({"sequence_parallel_size": 4})", {{"cp_size", "4"}, {"cp_comm_type", "a2a"}}},
      {"train_micro_batch_size_per_gpu",
       R"({"train_micro_batch_size_per_gpu": 6})",
       {{"per_device_train_batch_size", "6"}}},
      {"gradient_accumulation_steps", R"({"gradient_accumulation_steps": 6})", {{"gradient_accumulation_steps", "6"}}},
      {"optimizer.type", R"({"optimizer": {"type": "Lion"}})", {{"optim", "lion"}}},
      {"optimizer.params.lr", R"({"optimizer": {"type": "Lion", "params": {"lr": 1}}})", {{"learning_rate", "1"}}},
      {"optimizer.params.betas",
       R"({"optimizer": {"type": "Lion", "params": {"betas": [0.5, 0.6]}}})",
       {{"adam_beta1", "0.5"}, {"adam_beta2", "0.6"}}},
      {"optimizer.params.eps", R"({"optimizer": {"type": "Adam", "params": {"eps": 1}}})", {{"adam_epsilon", "1"}}},
      {"optimizer.params.weight_decay",
       R"({"optimizer": {"type": "Adam", "params": {"weight_decay": 1}}})",
       {{"weight_decay", "1"}}},
      {"optimizer.params.momentum",
       R"({"optimizer": {"type": "SGD", "params": {"momentum": 0.5}}})",
       {{"momentum", "0.5"}}},
      {"optimizer.params.nesterov",
       R"({"optimizer": {"type": "SGD", "params": {"nesterov": true}}})",
       {{"nesterov", "true"}}},
      {"optimizer.params.adam_w_mode",
       R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})",
       {{"optim", "adam"}}},
      {"optimizer.params.bias_correction",
       R"({"optimizer": {"type": "AdamW", "params": {"bias_correction": false}}})",
       {{"optim_args", R"({"bias_correction":false})"}}},
      {"optimizer.params.bias_correction",
       R"({"optimizer": {"type": "Lamb", "params": {"bias_correction": false}}})",
       {{"optim_args", R"({"eps":1e-08,"min_trust_ratio":0.01,"max_trust_ratio":10.0,"bias_correction":false,)"
                       R"("adapt_undecayed":true})"}}},
      {"optimizer.params.lr_decay",
       R"({"optimizer": {"type": "Adagrad", "params": {"lr_decay": 0.5}}})",
       {{"optim_args", R"({"lr_decay":0.5})"}}},
      {"optimizer.params.initial_accumulator_value",
       R"({"optimizer": {"type": "Adagrad", "params": {"initial_accumulator_value": 0.5}}})",
       {{"optim_args", R"({"initial_accumulator_value":0.5})"}}},
      {"optimizer.params.max_coeff",
       R"({"optimizer": {"type": "Lamb", "params": {"max_coeff": 2}}})",
       {{"optim_args", R"({"eps":1e-08,"min_trust_ratio":0.01,"max_trust_ratio":2.0,"adapt_undecayed":true})"}}},
      {"optimizer.params.min_coeff",
       R"({"optimizer": {"type": "Lamb", "params": {"min_coeff": 0.5}}})",
       {{"optim_args", R"({"eps":1e-08,"min_trust_ratio":0.5,"max_trust_ratio":10.0,"adapt_undecayed":true})"}}},
      {"optimizer.params.var_freeze_step",
       R"({"optimizer": {"type": "ZeroOneAdam", "params": {"var_freeze_step": 7}}})",
       {{"grad_compression", "onebit:warmup=7"}}},
      {"optimizer.params.freeze_step",
       R"({"optimizer": {"type": "OneBitAdam", "params": {"freeze_step": 7}}})",
       {{"grad_compression", "onebit:warmup=7"}}},
      {"scheduler.type", R"({"scheduler": {"type": "WarmupLR"}})", {{"lr_scheduler_type", "warmup_lr"}}},
      {"scheduler.params.warmup_min_lr",
       R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 1}}})",
       {{"lr_scheduler_kwargs", R"({"warmup_min_lr":1.0})"}}},
      {"scheduler.params.warmup_max_lr",
       R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1}}})",
       {{"lr_scheduler_kwargs", R"({"warmup_max_lr":1.0})"}}},
      {"scheduler.params.warmup_num_steps",
       R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 1}}})",
       {{"lr_scheduler_kwargs", R"({"warmup_num_steps":1})"}}},
      {"scheduler.params.warmup_type",
       R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "linear"}}})",
       {{"lr_scheduler_kwargs", R"({"warmup_type":"linear"})"}}},
      {"scheduler.params.total_num_steps",
       R"({"scheduler": {"type": "WarmupDecayLR", "params": {"total_num_steps": 9}}})",
       {{"lr_scheduler_kwargs", R"({"total_num_steps":9})"}}},
      {"scheduler.params.warmup_min_ratio",
       R"({"scheduler": {"type": "WarmupCosineLR", "params": {"warmup_min_ratio": 0.5}}})",
       {{"lr_scheduler_kwargs", R"({"warmup_min_ratio":0.5})"}}},
      {"scheduler.params.cos_min_ratio",
       R"({"scheduler": {"type": "WarmupCosineLR", "params": {"cos_min_ratio": 0.5}}})",
       {{"lr_scheduler_kwargs", R"({"cos_min_ratio":0.5})"}}},
      {"scheduler.params.lr_range_test_min_lr",
       R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_min_lr": [0.5]}}})",
       {{"lr_scheduler_kwargs", R"({"lr_range_test_min_lr":0.5})"}}},
      {"scheduler.params.lr_range_test_step_size",
       R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_step_size": 5}}})",
       {{"lr_scheduler_kwargs", R"({"lr_range_test_step_size":5})"}}},
      {"scheduler.params.lr_range_test_step_rate",
       R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_step_rate": 5}}})",
       {{"lr_scheduler_kwargs", R"({"lr_range_test_step_rate":5.0})"}}},
      {"scheduler.params.lr_range_test_staircase",
       R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_staircase": true}}})",
       {{"lr_scheduler_kwargs", R"({"lr_range_test_staircase":true})"}}},
      {"scheduler.params.cycle_min_lr", first.c_str(), cycled(R"("cycle_first_step_size":9)")},
      {"scheduler.params.cycle_max_lr", first.c_str(), cycled(R"("cycle_first_step_size":9)")},
      {"scheduler.params.decay_lr_rate", rate.c_str(), cycled(R"("decay_lr_rate":0.5)")},
      {"scheduler.params.cycle_first_step_size", first.c_str(), cycled(R"("cycle_first_step_size":9)")},
      {"scheduler.params.cycle_second_step_size", second.c_str(), cycled(R"("cycle_second_step_size":9)")},
      {"scheduler.params.decay_step_size", size.c_str(), cycled(R"("decay_step_size":9)")},
      {"scheduler.params.cycle_momentum", momentum.c_str(), cycled(R"("cycle_momentum":true)")},
      {"scheduler.params.cycle_min_mom", least.c_str(), cycled(R"("cycle_min_mom":0.5)")},
      {"scheduler.params.cycle_max_mom", most.c_str(), cycled(R"("cycle_max_mom":0.5)")},
      {"scheduler.params.decay_mom_rate", decay.c_str(), cycled(R"("decay_mom_rate":0.5)")},
      {"gradient_clipping", R"({"gradient_clipping": 0})", {{"max_grad_norm", "0"}}},
      {"fp16.enabled", R"({"fp16": {"enabled": true}})", {{"fp16", "true"}}},
      {"fp16.loss_scale", R"({"fp16": {"enabled": true, "loss_scale": 8}})", {{"loss_scale", "8"}}},
      {"fp16.initial_scale_power",
       R"({"fp16": {"enabled": true, "initial_scale_power": 8}})",
       {{"initial_scale_power", "8"}}},
      {"fp16.loss_scale_window",
       R"({"fp16": {"enabled": true, "loss_scale_window": 8}})",
       {{"loss_scale_window", "8"}}},
      {"fp16.hysteresis", R"({"fp16": {"enabled": true, "hysteresis": 8}})", {{"hysteresis", "8"}}},
      {"fp16.consecutive_hysteresis",
       R"({"fp16": {"enabled": true, "consecutive_hysteresis": true}})",
       {{"consecutive_hysteresis", "true"}}},
      {"fp16.min_loss_scale", R"({"fp16": {"enabled": true, "min_loss_scale": 8}})", {{"min_loss_scale", "8"}}},
      {"bf16.enabled", R"({"bf16": {"enabled": true}})", {{"bf16", "true"}}},
      {"bf16.bf16_optimizer_states",
       R"({"bf16": {"enabled": true, "bf16_optimizer_states": true}})",
       {{"bf16_optimizer_states", "true"}}},
      {"bfloat16", R"({"bfloat16": {"enabled": true}})", {{"bf16", "true"}}},
      {"torch_autocast.enabled", R"({"torch_autocast": {"enabled": true}})", {{"bf16", "true"}}},
      {"torch_autocast.dtype",
       R"({"torch_autocast": {"enabled": true, "dtype": "torch.float16"}})",
       {{"fp16", "true"}}},
      {"data_types.param_dtype", R"({"data_types": {"param_dtype": "bf16"}})", {{"param_dtype", "bf16"}}},
      {"data_types.buffer_dtype", R"({"data_types": {"buffer_dtype": "bf16"}})", {{"buffer_dtype", "bf16"}}},
      {"communication_data_type", R"({"communication_data_type": "fp16"})", {{"reduce_dtype", "fp16"}}},
      {"prescale_gradients", R"({"prescale_gradients": true})", {{"gradient_predivide_factor", "1"}}},
      {"gradient_predivide_factor", R"({"gradient_predivide_factor": 2})", {{"gradient_predivide_factor", "2"}}},
      {"dataloader_drop_last", R"({"dataloader_drop_last": true})", {{"dataloader_drop_last", "true"}}},
      {"tensorboard.enabled", R"({"tensorboard": {"enabled": true}})", {{"report_to", "tensorboard"}}},
      {"tensorboard.output_path",
       R"({"tensorboard": {"enabled": true, "output_path": "a"}})",
       {{"logging_dir", "a/DeepSpeedJobName"}}},
      {"tensorboard.job_name",
       R"({"tensorboard": {"enabled": true, "output_path": "a", "job_name": "b"}})",
       {{"logging_dir", "a/b"}}},
      {"zero_optimization", R"({"zero_optimization": true})", {{"zero_stage", "1"}}},
      {"zero_optimization.stage", R"({"zero_optimization": {"stage": 3}})", {{"zero_stage", "3"}}},
      {"zero_optimization.overlap_comm",
       R"({"zero_optimization": {"overlap_comm": false}})",
       {{"overlap_comm", "false"}}},
      {"zero_optimization.reduce_bucket_size",
       R"({"zero_optimization": {"reduce_bucket_size": 2e8}})",
       {{"reduce_bucket_size", "200000000"}}},
      {"zero_optimization.offload_optimizer",
       R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "cpu"}}})",
       {{"cpu_offload", "optimizer"}}},
      {"zero_optimization.offload_optimizer.device",
       R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "CPU"}}})",
       {{"cpu_offload", "optimizer"}}},
      {"zero_optimization.offload_optimizer.nvme_path",
       R"({"zero_optimization": {"stage": 1, "offload_optimizer": {"device": "nvme", "nvme_path": "/n"}}})",
       {{"cpu_offload", "optimizer"}, {"offload_folder", "/n"}}},
      {"checkpoint.writer.decoupled", R"({"checkpoint": {"writer": {"decoupled": false}}})", {{"async_save", "false"}}},
      {"zero_optimization.offload_param",
       R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})",
       {{"cpu_offload", "params"}}},
      {"zero_optimization.offload_param.device",
       R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})",
       {{"cpu_offload", "params"}}},
      {"zero_optimization.offload_param.nvme_path",
       R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme", "nvme_path": "/n"}}})",
       {{"cpu_offload", "params"}, {"offload_folder", "/n"}}},
      {"zero_optimization.stage3_prefetch_bucket_size",
       R"({"zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 0}})",
       {{"backward_prefetch", "no_prefetch"}}},
      {"zero_optimization.stage3_param_persistence_threshold",
       R"({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1}})",
       {{"persistence_threshold", "1"}}},
      {"zero_optimization.zero_hpz_partition_size",
       R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 4}})",
       {{"strategy", "hybrid_shard"}, {"shard_group_size", "4"}}},
      {"zero_optimization.mics_shard_size",
       R"({"zero_optimization": {"stage": 3, "mics_shard_size": 4}})",
       {{"strategy", "hybrid_shard"}, {"shard_group_size", "4"}}},
      {"zero_optimization.cpu_offload",
       R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})",
       {{"cpu_offload", "optimizer"}}},
      {"zero_optimization.cpu_offload_param",
       R"({"zero_optimization": {"stage": 3, "cpu_offload_param": true}})",
       {{"cpu_offload", "params"}}},
      {"zero_optimization.cpu_offload_params",
       R"({"zero_optimization": {"stage": 3, "cpu_offload_params": true}})",
       {{"cpu_offload", "params"}}},
  };
  return all;
}

TEST(DeepspeedRows, ActingKeysBecomeSettings) {
  for (const ActingRow& row : acting_rows()) {
    const Outcome outcome = read_case(row.json);
    EXPECT_EQ(outcome.problems, Words{}) << row.json;
    for (const auto& [name, text] : row.settings) {
      const auto found = outcome.settings.find(name);
      EXPECT_EQ(found == outcome.settings.end() ? std::string("(nothing)") : found->second, text)
          << row.json << " " << name;
    }
  }
}

// The table is complete: every acting row has its file above and names an existing setting; every other row gives a
// reason.
TEST(DeepspeedRows, EveryRowIsTested) {
  std::set<std::string_view> keys, tested;
  for (const ActingRow& row : acting_rows()) tested.insert(row.key);
  for (const KeyRow& row : deepspeed_rows()) {
    EXPECT_TRUE(keys.insert(row.key).second) << row.key;
    if (row.effect == Effect::acts) {
      EXPECT_TRUE(tested.contains(row.key)) << row.key;
      EXPECT_NE(find_field(row.setting), nullptr) << row.key << " " << row.setting;
    } else {
      EXPECT_TRUE(row.setting.empty()) << row.key;
      EXPECT_GT(row.why.size(), 5u) << row.key;
    }
  }
  EXPECT_GT(keys.size(), 200u);
  for (const std::string_view key : tested) EXPECT_TRUE(keys.contains(key)) << key;
}

}  // namespace
}  // namespace tessera::config
