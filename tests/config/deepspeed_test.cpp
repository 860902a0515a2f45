// DeepSpeed's JSON: batch sizes, precision, ZeRO, optimizers, schedules, the sources of the file, and whole files.

#include "deepspeed_cases.h"

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/config/core/fields.h>
#include <tessera/config/resolve/resolve.h>
#include <tests/growth.h>
#include <tests/paths.h>

#include <cstdlib>

namespace tessera::config {
namespace {

std::optional<std::string> no_variables(const std::string&) { return std::nullopt; }

// transformers leaves clipping to DeepSpeed, which clips only if its file sets it.
TEST(Deepspeed, ClipsOnlyWhereItsFileSaysSo) {
  const auto norm = [](const std::string& json, Words flags) {
    flags.insert(flags.end(), {"--deepspeed", json});
    return resolve_flags(flags, no_variables).values.optimization.max_grad_norm;
  };
  EXPECT_EQ(norm(R"({"steps_per_print": 1})", {}), 0);
  EXPECT_EQ(norm(R"({"gradient_clipping": "auto"})", {}), 1);
  EXPECT_EQ(norm(R"({"gradient_clipping": 0.5})", {}), 0.5);
  EXPECT_EQ(norm(R"({"steps_per_print": 1})", {"--max_grad_norm", "2"}), 2);
  EXPECT_EQ(note_of("{}", {"--max_grad_norm", "2"}),
            "deepspeed:1: gradient_clipping is not set, so DeepSpeed before 0.19.3 would not clip; here "
            "--max_grad_norm 2 clips");
  EXPECT_EQ(
      resolve_flags({"--deepspeed", R"({"gradient_accumulation_steps": 1})"}, no_variables).notes,
      std::vector<std::string>{"deepspeed:1: gradient_clipping is not set: gradients are not clipped, as in DeepSpeed "
                               "before 0.19.3; later versions clip at 1.0; set gradient_clipping to 0.0 or 1.0"});
}

TEST(Deepspeed, WhatItNeverReadsIsAWarning) {
  for (const char* key : {"cuda_visible_devices", "comms_config", "monitor_config"})
    EXPECT_EQ(note_of(concat("{\"", key, "\": {\"a\": 1}}")),
              concat("deepspeed:1: without effect here: ", key, " (line 1): DeepSpeed never reads it"));
  EXPECT_EQ(note_of(R"({"_comment": "mine"})"), "deepspeed:1: without effect here: _comment (line 1): a comment");
  EXPECT_EQ(note_of(R"({"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}})"),
            "deepspeed:1: zero_optimization.offload_param has no effect: it is for stage 3, which shards parameters, "
            "but zero_optimization.stage is 2");
  EXPECT_EQ(settings(R"({"zero_optimization": {"stage": 2, "reduce_bucket_size": 0}})").at("reduce_bucket_size"), "1");
}

TEST(Deepspeed, ItsScheduleBeatsTheArguments) {
  const Resolved run =
      resolve_flags({"--deepspeed", R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 7}}})",
                     "--lr_scheduler_type", "cosine", "--lr_scheduler_kwargs", "num_cycles=2"},
                    no_variables);
  EXPECT_EQ(run.values.optimization.lr_scheduler_type, ScheduleType::warmup_lr);
  EXPECT_EQ(run.values.optimization.lr_scheduler_kwargs, R"({"warmup_num_steps":7})");
  EXPECT_EQ(run.origin("lr_scheduler_type").str(), "deepspeed:1");
  EXPECT_EQ(run.notes, (Words{"deepspeed:1: gradient_clipping is not set: gradients are not clipped, as in DeepSpeed "
                              "before 0.19.3; later versions clip at 1.0; set gradient_clipping to 0.0 or 1.0",
                              "deepspeed:1: scheduler.type WarmupLR is used, not lr_scheduler_type "
                              "(--lr_scheduler_type): DeepSpeed uses its file's schedule",
                              "deepspeed:1: scheduler.params is used, not lr_scheduler_kwargs (--lr_scheduler_kwargs): "
                              "DeepSpeed uses its file's schedule"}));
  EXPECT_EQ(read_case(R"({"scheduler": {"type": "WarmupLR"}})", {"--lr_scheduler_type", "warmup_lr"}).notes, Words{});
}

// ---- batch sizes: DeepSpeed's unit/runtime/test_ds_config_dict.py and test_ds_config_model.py, restated

struct BatchCase {
  std::int64_t world, batch, micro, steps;  // 0: not given
  bool right;
};

class DeepspeedBatch : public ::testing::TestWithParam<BatchCase> {};

std::string batch_json(std::int64_t batch, std::int64_t micro, std::int64_t steps) {
  Words parts;
  if (batch != 0) parts.push_back(concat("\"train_batch_size\": ", batch));
  if (micro != 0) parts.push_back(concat("\"train_micro_batch_size_per_gpu\": ", micro));
  if (steps != 0) parts.push_back(concat("\"gradient_accumulation_steps\": ", steps));
  return concat("{", join(parts), "}");
}

TEST_P(DeepspeedBatch, Table) {
  const auto [world, batch, micro, steps, right] = GetParam();
  // every way to omit a value that can be inferred
  for (const auto& [b, m, s] : {std::tuple(batch, micro, steps), std::tuple(batch, micro, std::int64_t{0}),
                                std::tuple(batch, std::int64_t{0}, steps), std::tuple(std::int64_t{0}, micro, steps)}) {
    Problems problems;
    const Resolved resolved = resolve_deepspeed(batch_json(b, m, s), world, problems);
    if (right) {
      EXPECT_EQ(problems.lines, Words{});
      EXPECT_EQ(resolved.values.optimization.per_device_train_batch_size, micro) << batch_json(b, m, s);
      EXPECT_EQ(resolved.values.optimization.gradient_accumulation_steps, steps) << batch_json(b, m, s);
    } else if (b != 0 && m != 0 && s != 0) {
      EXPECT_EQ(problems.lines.size(), 1u) << batch_json(b, m, s);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Theirs, DeepspeedBatch,
                         ::testing::Values(BatchCase{2, 32, 16, 1, true}, BatchCase{2, 32, 8, 2, true},
                                           BatchCase{2, 33, 17, 2, false}, BatchCase{2, 32, 18, 1, false},
                                           BatchCase{1, 64, 64, 1, true}, BatchCase{4, 64, 4, 4, true}));

TEST(DeepspeedBatch, OneNumberIsEnough) {
  EXPECT_EQ(settings(R"({"train_batch_size": 64})"),
            (Texts{{"per_device_train_batch_size", "64"}, {"gradient_accumulation_steps", "1"}}));
  EXPECT_EQ(settings(R"({"train_batch_size": 64})", {"--num_processes", "4"}),
            (Texts{{"per_device_train_batch_size", "16"}, {"gradient_accumulation_steps", "1"}}));
  EXPECT_EQ(settings(R"({"train_micro_batch_size_per_gpu": 4})"), (Texts{{"per_device_train_batch_size", "4"}}));
  EXPECT_EQ(settings(R"({"train_batch_size": 64})", {"--gradient_accumulation_steps", "4"}),
            (Texts{{"per_device_train_batch_size", "16"}}));
  EXPECT_EQ(settings(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto"})"),
            (Texts{{"gradient_accumulation_steps", "8"}}));
  EXPECT_EQ(settings(R"({"train_batch_size": "auto", "train_micro_batch_size_per_gpu": "auto", )"
                     R"("gradient_accumulation_steps": "auto"})"),
            Texts{});
  EXPECT_EQ(settings(R"({"gradient_accumulation_steps": 4})"), (Texts{{"gradient_accumulation_steps", "4"}}));
  EXPECT_EQ(settings(R"({"train_batch_size": "64"})"), settings(R"({"train_batch_size": 6.4e1})"));
  EXPECT_EQ(settings("{}"), Texts{});
}

TEST(DeepspeedBatch, Problems) {
  EXPECT_EQ(
      problem_of(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": 2})",
                 {"--num_processes", "2"}),
      "deepspeed:1:22: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 != 4 * "
      "2 * 2: remove one of the three");
  EXPECT_EQ(problem_of(R"({"train_batch_size": 64})", {"--num_processes", "3"}),
            "deepspeed:1:22: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 64 "
            "!= 21 * 1 * 3: with 3 processes it must be "
            "a multiple of 3");
  EXPECT_EQ(problem_of(R"({"train_batch_size": 4, "train_micro_batch_size_per_gpu": 8})"),
            "deepspeed:1:22: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size 4 "
            "!= 8 * 0 * 1: with 1 process and micro "
            "batches of 8 it must be a multiple of 8");
  EXPECT_EQ(problem_of(R"({"train_batch_size": 0})"),
            "deepspeed:1:22: train_batch_size is 0; it has to be greater than 0");
  EXPECT_EQ(problem_of(R"({"train_batch_size": -4})"), "deepspeed:1:22: train_batch_size is -4; it must be at least 0");
  EXPECT_EQ(problem_of(R"({"train_batch_size": 4.5})"),
            "deepspeed:1:22: train_batch_size is 4.5; it must be a whole number (2e8 is one)");
  EXPECT_EQ(problem_of(R"({"train_batch_size": true})"),
            "deepspeed:1:22: train_batch_size is true; it must be a whole number (2e8 is one)");
  EXPECT_EQ(
      problem_of(R"({"train_batch_size": 64, "train_micro_batch_size_per_gpu": "auto", )"
                 R"("gradient_accumulation_steps": "auto"})"),
      "deepspeed:1:22: - ds train_batch_size=64 vs hf train_batch_size (calculated)=8 (per_device_train_batch_size 8 "
      "from default, "
      "gradient_accumulation_steps 1 from default, 1 process): make them equal, or write \"auto\"");
  Problems alone;
  resolve_deepspeed(R"({"gradient_accumulation_steps": 4})", 1, alone);
  EXPECT_EQ(alone.lines,
            Words{"deepspeed:1:1: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided (or "
                  "--per_device_train_batch_size among the arguments)"});
}

// ---- sources of the file

TEST(DeepspeedSource, FileInlineBase64) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "ds.json");
  write_file_atomically(path, "// written by hand\n{\n  train_batch_size: 8, # eight\n}\n");
  const Texts expected = {{"per_device_train_batch_size", "8"}, {"gradient_accumulation_steps", "1"}};
  EXPECT_EQ(settings(path), expected);
  EXPECT_EQ(settings("  {\"train_batch_size\": 8}"), expected);
  EXPECT_EQ(settings("eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0="), expected);
  EXPECT_EQ(settings("eyJ0cmFpbl9iYXRjaF9zaXplIjogOH0"), expected);
}

TEST(DeepspeedSource, Problems) {
  const TemporaryFolder folder;
  EXPECT_EQ(problem_of("no_such.json"),
            "--deepspeed no_such.json: no such file (a JSON object starts with '{'; base64 of one is accepted, too)");
  EXPECT_EQ(problem_of(folder.path()), concat("--deepspeed ", folder.path(), " is a folder; expected a JSON file"));
  const std::string path = path_join(folder.path(), "ds.json");
  write_file_atomically(path, "{\n \"train_batch_size\": 8,\n \"train_batch_size\": 8\n}");
  EXPECT_EQ(problem_of(path), concat(path, ":3:22: the key \"train_batch_size\" appears twice (first at ", path,
                                     ":2:22); keep one of them"));
  write_file_atomically(path, "[1]");
  EXPECT_EQ(problem_of(path), concat(path, ":1:1: expected an object with keys such as train_batch_size"));
  EXPECT_EQ(problem_of("{\"train_batch_size\": }"), "deepspeed:1:22: expected a value, found '}'");
}

// ---- keys that act

struct ActingCase {
  const char* json;
  Texts settings;
};

class DeepspeedActs : public ::testing::TestWithParam<ActingCase> {};

TEST_P(DeepspeedActs, Settings) { EXPECT_EQ(settings(GetParam().json), GetParam().settings); }

INSTANTIATE_TEST_SUITE_P(
    Precision, DeepspeedActs,
    ::testing::Values(
        ActingCase{R"({"fp16": {"enabled": true}})",
                   {{"fp16", "true"}, {"loss_scale_window", "1000"}, {"hysteresis", "2"}}},
        ActingCase{R"({"fp16": {"enabled": true, "loss_scale": 128, "hysteresis": 4}})",
                   {{"fp16", "true"}, {"loss_scale", "128"}}},
        ActingCase{
            R"({"fp16": {"enabled": "true", "loss_scale": 0, "initial_scale_power": 32, "loss_scale_window": 5e2,
                "hysteresis": 1,
                     "consecutive_hysteresis": true, "min_loss_scale": 0.5}})",
            {{"fp16", "true"},
             {"loss_scale", "0"},
             {"initial_scale_power", "32"},
             {"loss_scale_window", "500"},
             {"hysteresis", "1"},
             {"consecutive_hysteresis", "true"},
             {"min_loss_scale", "0.5"}}},
        ActingCase{R"({"fp16": {"enabled": false, "initial_scale_power": 16}})", {{"fp16", "false"}}},
        ActingCase{R"({"fp16": {"enabled": "auto", "initial_scale_power": 16}})", {}},
        ActingCase{R"({"bf16": {"enabled": true, "bf16_optimizer_states": true}})",
                   {{"bf16", "true"}, {"bf16_optimizer_states", "true"}}},
        ActingCase{R"({"bfloat16": {"enabled": true}})", {{"bf16", "true"}}},
        ActingCase{R"({"torch_autocast": {"enabled": true, "dtype": "float16"}})", {{"fp16", "true"}}},
        ActingCase{R"({"torch_autocast": {"enabled": true}})", {{"bf16", "true"}}},
        ActingCase{R"({"amp": {"enabled": false, "opt_level": "O1"}})", {}},
        ActingCase{R"({"communication_data_type": "BF16"})", {{"reduce_dtype", "BF16"}}},
        ActingCase{R"({"data_types": {"grad_accum_dtype": "fp32"}})", {}},
        ActingCase{R"({"gradient_predivide_factor": 4.0, "prescale_gradients": false})",
                   {{"gradient_predivide_factor", "4"}}},
        ActingCase{
            R"({"gradient_predivide_factor": 1.0, "prescale_gradients": false, "gradient_allreduce_op": "mean"})",
            {}}));

TEST(DeepspeedActs, WhatTheRunSaysFillsAuto) {
  const char* both = R"({"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}})";
  EXPECT_EQ(settings(both, {"--fp16"}), (Texts{{"loss_scale_window", "1000"}, {"hysteresis", "2"}}));
  EXPECT_EQ(settings(both, {"--fp16", "--hysteresis", "1"}), (Texts{{"loss_scale_window", "1000"}}));
  EXPECT_EQ(settings(both, {"--bf16"}), Texts{});
  EXPECT_EQ(settings(both, {"--bf16_full_eval"}), (Texts{{"bf16", "true"}}));
  EXPECT_EQ(settings(R"({"prescale_gradients": true})", {"--num_processes", "4"}),
            (Texts{{"gradient_predivide_factor", "4"}}));
}

INSTANTIATE_TEST_SUITE_P(
    Zero, DeepspeedActs,
    ::testing::Values(
        // DeepSpeed's unit/v1/zero/test_zero_config.py: overlap_comm by stage
        ActingCase{R"({"zero_optimization": {"stage": 0}})", {{"zero_stage", "0"}}},
        ActingCase{R"({"zero_optimization": {"stage": 1}})", {{"zero_stage", "1"}, {"overlap_comm", "false"}}},
        ActingCase{R"({"zero_optimization": {"stage": 2}})", {{"zero_stage", "2"}, {"overlap_comm", "false"}}},
        ActingCase{R"({"zero_optimization": {"stage": 3}})", {{"zero_stage", "3"}, {"overlap_comm", "true"}}},
        ActingCase{R"({"zero_optimization": {"stage": 2, "overlap_comm": true}})",
                   {{"zero_stage", "2"}, {"overlap_comm", "true"}}},
        ActingCase{R"({"zero_optimization": {"stage": 3, "overlap_comm": false}})",
                   {{"zero_stage", "3"}, {"overlap_comm", "false"}}},
        ActingCase{R"({"zero_optimization": {}})", {}},
        ActingCase{R"({"zero_optimization": {"stage": 2, "overlap_comm": true, "reduce_bucket_size": 5e8}})",
                   {{"zero_stage", "2"}, {"overlap_comm", "true"}, {"reduce_bucket_size", "500000000"}}},
        ActingCase{R"({"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 1e5, )"
                   R"("stage3_prefetch_bucket_size": 0}})",
                   {{"zero_stage", "3"},
                    {"overlap_comm", "true"},
                    {"persistence_threshold", "100000"},
                    {"backward_prefetch", "no_prefetch"},
                    {"forward_prefetch", "false"}}},
        ActingCase{
            R"({"zero_optimization": {"stage": 3, "param_persistence_threshold": "10", "prefetch_bucket_size": 1e6}})",
            {{"zero_stage", "3"}, {"overlap_comm", "true"}, {"persistence_threshold", "10"}}},
        ActingCase{R"({"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}})",
                   {{"zero_stage", "2"}, {"overlap_comm", "false"}, {"cpu_offload", "optimizer"}}},
        ActingCase{R"({"zero_optimization": {"stage": 2, "cpu_offload": true}})",
                   {{"zero_stage", "2"}, {"overlap_comm", "false"}, {"cpu_offload", "optimizer"}}},
        ActingCase{R"({"zero_optimization": {"stage": 2, "cpu_offload": false}})",
                   {{"zero_stage", "2"}, {"overlap_comm", "false"}}},
        ActingCase{R"({"zero_optimization": {"stage": 3, "cpu_offload_params": true}})",
                   {{"zero_stage", "3"}, {"overlap_comm", "true"}, {"cpu_offload", "params"}}},
        ActingCase{R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "none", "pin_memory": true}, )"
                   R"("offload_param": {}}})",
                   {{"zero_stage", "3"}, {"overlap_comm", "true"}}},
        ActingCase{
            R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"}, )"
            R"("offload_param": {"device": "cpu"}}})",
            {{"zero_stage", "3"}, {"overlap_comm", "true"}, {"cpu_offload", "all"}, {"offload_folder", "/tmp"}}},
        ActingCase{R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2}})",
                   {{"strategy", "hybrid_shard"}, {"shard_group_size", "2"}, {"overlap_comm", "true"}}},
        ActingCase{R"({"zero_optimization": {"stage": 3, "mics_shard_size": -1, "zero_hpz_partition_size": 1}})",
                   {{"zero_stage", "3"}, {"overlap_comm", "true"}}}));

INSTANTIATE_TEST_SUITE_P(
    OptimizerAndScheduler, DeepspeedActs,
    ::testing::Values(
        ActingCase{R"({"optimizer": {"type": "Adam", "params": {"lr": 1e-4, "betas": [0.8, 0.99], "eps": 1e-6, )"
                   R"("weight_decay": 3e-7}}})",
                   {{"optim", "adamw"},
                    {"learning_rate", "1e-04"},
                    {"adam_beta1", "0.8"},
                    {"adam_beta2", "0.99"},
                    {"adam_epsilon", "1e-06"},
                    {"weight_decay", "3e-07"}}},
        ActingCase{R"({"optimizer": {"type": "Adam", "params": {"adam_w_mode": false}}})",
                   {{"optim", "adam"}, {"learning_rate", "0.001"}}},
        ActingCase{R"({"optimizer": {"type": "adamw", "params": {"lr": "auto", "betas": "auto", "eps": "auto", )"
                   R"("weight_decay": "auto"}}})",
                   {{"optim", "adamw"}}},
        ActingCase{R"({"optimizer": {"type": "Adagrad", "params": {"eps": 1e-9}}})",
                   {{"optim", "adagrad"}, {"learning_rate", "0.01"}, {"optim_args", R"({"eps":1e-09})"}}},
        ActingCase{R"({"optimizer": {"type": "Lion", "params": {"lr": 1e-4, "betas": [0.9, 0.99]}}})",
                   {{"optim", "lion"}, {"learning_rate", "1e-04"}, {"adam_beta1", "0.9"}, {"adam_beta2", "0.99"}}},
        ActingCase{
            R"({"optimizer": {"type": "Lamb", "params": {"lr": 1e-2, "max_coeff": 0.3}}})",
            {{"optim", "lamb"},
             {"learning_rate", "0.01"},
             {"optim_args", R"({"eps":1e-08,"min_trust_ratio":0.01,"max_trust_ratio":0.3,"adapt_undecayed":true})"}}},
        ActingCase{R"({"optimizer": {"type": "SGD", "params": {"lr": 1, "momentum": 0.9, "nesterov": true, )"
                   R"("max_grad_norm": 0}}})",
                   {{"optim", "sgd"}, {"learning_rate", "1"}, {"momentum", "0.9"}, {"nesterov", "true"}}},
        ActingCase{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001, )"
                   R"("warmup_num_steps": 1000}}})",
                   {{"lr_scheduler_type", "warmup_lr"},
                    {"lr_scheduler_kwargs", R"({"warmup_min_lr":0.0,"warmup_max_lr":0.001,"warmup_num_steps":1000})"}}},
        ActingCase{
            R"({"scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": "auto", "warmup_max_lr": "auto",
                "warmup_num_steps": "auto",
                     "total_num_steps": "auto", "warmup_type": "auto"}}})",
            {{"lr_scheduler_type", "warmup_decay_lr"},
             {"lr_scheduler_kwargs",
              R"({"warmup_max_lr":"auto","warmup_num_steps":"auto","total_num_steps":"auto"})"}}},
        ActingCase{
            R"({"scheduler": {"type": "WarmupCosineLR", "params": {"total_num_steps": 1e3, )"
            R"("warmup_min_ratio": "0.1", "cos_min_ratio": 1e-3, "warmup_type": "Linear"}}})",
            {{"lr_scheduler_type", "warmup_cosine_lr"},
             {"lr_scheduler_kwargs",
              R"({"total_num_steps":1000,"warmup_min_ratio":0.1,"cos_min_ratio":0.001,"warmup_type":"linear"})"}}},
        ActingCase{R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 1e-4, "cycle_max_lr": [0.1], )"
                   R"("cycle_momentum": false, "cycle_first_stair_count": 0}}})",
                   {{"lr_scheduler_type", "one_cycle"},
                    {"lr_scheduler_kwargs", R"({"cycle_min_lr":1e-04,"cycle_max_lr":0.1,"cycle_momentum":false})"}}},
        ActingCase{R"({"scheduler": {"type": "LRRangeTest", "params": {"lr_range_test_min_lr": 0.01, )"
                   R"("lr_range_test_staircase": true}}})",
                   {{"lr_scheduler_type", "lr_range_test"},
                    {"lr_scheduler_kwargs", R"({"lr_range_test_min_lr":0.01,"lr_range_test_staircase":true})"}}},
        ActingCase{R"({"scheduler": {"type": "WarmupLR"}})", {{"lr_scheduler_type", "warmup_lr"}}},
        ActingCase{R"({"tensorboard": {"enabled": true, "output_path": "logs", "job_name": "train"}})",
                   {{"report_to", "tensorboard"}, {"logging_dir", "logs/train"}}},
        ActingCase{R"({"tensorboard": {"enabled": false, "output_path": "logs"}, "dataloader_drop_last": true})",
                   {{"dataloader_drop_last", "true"}}}));

// ---- notes

TEST(DeepspeedNotes, OneForAllThatHasNoEffect) {
  EXPECT_EQ(note_of("{\"steps_per_print\": 2000,\n\"wall_clock_breakdown\": true, \"memory_breakdown\": "
                    "false,\n\"aio\": {\"block_size\": 1, \"queue_depth\": 8}}"),
            "deepspeed:1: without effect here: steps_per_print (line 1): log lines come every logging_steps steps; "
            "aio.block_size (line 3), aio.queue_depth "
            "(line 3): offloaded memory is mapped from files, which the system reads ahead and writes behind; "
            "wall_clock_breakdown (line 2): report.html and "
            "metrics.jsonl show it for every run");
  EXPECT_EQ(
      note_of(R"({"wandb": {"enabled": true, "project": "p"}})"),
      "deepspeed:1: without effect here: wandb (line 1): metrics are written to metrics.jsonl and TensorBoard events");
}

TEST(DeepspeedNotes, AskingForWhatHappensAnyway) {
  EXPECT_EQ(settings(
                R"({"wall_clock_breakdown": false, "zero_optimization": {"contiguous_gradients": true,
              "allgather_partitions": true, "reduce_scatter": true,
                       "round_robin_gradients": false, "stage3_gather_16bit_weights_on_model_save": "auto",
                       "sub_group_size": "auto"},
                       "activation_checkpointing": {"number_checkpoints": false, "partition_activations": false,
                       "profile": null},
                       "elasticity": {"enabled": false},
                       "compression_training": {"weight_quantization": {"shared_parameters": {"enabled": false}}},
                       "compile": {"deepcompile": false}, "csv_monitor": {"enabled": false, "job_name": "x"},
                       "pipeline": {"stages": "auto"}})"),
            Texts{});
}

TEST(DeepspeedNotes, WhatMeansSomethingElseHere) {
  EXPECT_EQ(note_of(R"({"zero_optimization": true})"),
            "deepspeed:1: zero_optimization: true is an older spelling of {\"stage\": 1}");
  EXPECT_EQ(note_of(R"({"zero_optimization": {"stage": 3, "zero_hpz_partition_size": 2}})"),
            "deepspeed:1: zero_optimization.zero_hpz_partition_size 2: each group of 2 processes holds a full replica, "
            "optimizer states included (hybrid_shard)");
  const Outcome onebit =
      read_case(R"({"optimizer": {"type": "OneBitAdam", "params": {"lr": 2e-4, "freeze_step": 400}}})");
  EXPECT_EQ(onebit.settings, (Texts{{"optim", "adamw"},
                                    {"learning_rate", "2e-04"},
                                    {"optim_args", R"({"bias_correction":false})"},
                                    {"grad_compression", "onebit:warmup=400"}}));
  EXPECT_EQ(onebit.notes, Words{"deepspeed:1: optimizer.type OneBitAdam: AdamW, whose gradients (not momenta) are sent "
                                "in one bit after freeze_step steps; the second moment is still updated"});
  const Outcome lamb = read_case(
      R"({"optimizer": {"type": "OneBitLamb", "params": {"lr": 2e-3, "max_coeff": 0.3, "bias_correction": true}}})");
  EXPECT_EQ(
      lamb.settings,
      (Texts{{"optim", "lamb"},
             {"learning_rate", "0.002"},
             {"optim_args", R"({"eps":1e-08,"min_trust_ratio":0.01,"max_trust_ratio":0.3,"bias_correction":false,)"
                            R"("adapt_undecayed":true})"},
             {"grad_compression", "onebit:warmup=100000"}}));
  EXPECT_EQ(lamb.notes, (Words{"deepspeed:1: optimizer.params.bias_correction true has no effect: OneBitLamb has none",
                               "deepspeed:1: optimizer.type OneBitLamb: Lamb, whose gradients (not momenta) are sent "
                               "in one bit after freeze_step steps; the second moment is still updated"}));
  EXPECT_EQ(note_of(R"({"optimizer": {"type": "ZeroOneAdam", "params": {"lr": 4e-4, "var_freeze_step": 9}}})"),
            "deepspeed:1: optimizer.type ZeroOneAdam: AdamW, whose gradients (not momenta) are sent in one bit after "
            "var_freeze_step steps; the second moment is still updated, and every step is exchanged");
}

// ---- whole files

std::string fixture(const char* name) { return tessera::testing::source_path("tests/fixtures/deepspeed/") + name; }

TEST(Deepspeed, HuggingFacesZero2WithAuto) {
  const Outcome o = read_case(fixture("zero2_auto.json"),
                              {"--bf16", "--learning_rate", "1e-4", "--per_device_train_batch_size", "2"});
  EXPECT_EQ(o.problems, Words{});
  EXPECT_EQ(o.settings, (Texts{{"optim", "adamw"},
                               {"lr_scheduler_type", "warmup_lr"},
                               {"lr_scheduler_kwargs", R"({"warmup_max_lr":"auto","warmup_num_steps":"auto"})"},
                               {"zero_stage", "2"},
                               {"overlap_comm", "true"},
                               {"reduce_bucket_size", "200000000"},
                               {"cpu_offload", "optimizer"}}));
  EXPECT_EQ(
      o.notes,
      Words{concat(fixture("zero2_auto.json"),
                   ":1: without effect here: steps_per_print (line 45): log lines come every logging_steps steps; "
                   "zero_optimization.offload_optimizer.pin_memory (line 34): offloaded memory is mapped from files, "
                   "which the system reads "
                   "ahead and writes behind; zero_optimization.allgather_bucket_size (line 37): the parameters of a "
                   "block are gathered, reduced "
                   "and dropped as one")});
}

TEST(Deepspeed, HandWrittenZero3WithOffload) {
  const Outcome o = read_case(fixture("zero3_offload.hjson"), {"--config_name", "gpt2-tiny"});
  EXPECT_EQ(o.problems, Words{});
  EXPECT_EQ(o.settings, (Texts{{"per_device_train_batch_size", "4"},
                               {"gradient_accumulation_steps", "2"},
                               {"max_grad_norm", "1"},
                               {"bf16", "true"},
                               {"zero_stage", "3"},
                               {"overlap_comm", "true"},
                               {"reduce_bucket_size", "65536"},
                               {"persistence_threshold", "2560"},
                               {"cpu_offload", "all"},
                               {"offload_folder", "/tmp"},
                               {"report_to", "tensorboard"},
                               {"logging_dir", "logs/zero3"}}));
  ASSERT_EQ(o.notes.size(), 1u);
  for (const char* key : {"sub_group_size (line 11)", "stage3_max_live_parameters (line 15)",
                          "stage3_max_reuse_distance (line 16)", "buffer_count (line 18)"})
    EXPECT_NE(o.notes.front().find(key), std::string::npos) << o.notes.front();
}

TEST(Deepspeed, LambOneCycleAndFp16) {
  const Outcome o = read_case(fixture("onecycle.json"), {"--num_processes", "2"});
  EXPECT_EQ(o.problems, Words{});
  EXPECT_EQ(
      o.settings,
      (Texts{{"per_device_train_batch_size", "8"},
             {"gradient_accumulation_steps", "1"},
             {"optim", "lamb"},
             {"learning_rate", "0.001"},
             {"optim_args", R"({"eps":1e-08,"min_trust_ratio":0.01,"max_trust_ratio":0.3,"adapt_undecayed":true})"},
             {"lr_scheduler_type", "one_cycle"},
             {"lr_scheduler_kwargs", R"({"cycle_min_lr":1e-04,"cycle_max_lr":0.01,"cycle_first_step_size":100})"},
             {"fp16", "true"},
             {"initial_scale_power", "32"},
             {"loss_scale_window", "1000"},
             {"hysteresis", "2"},
             {"zero_stage", "0"},
             {"gradient_predivide_factor", "2"}}));
  ASSERT_EQ(o.notes.size(), 1u);
  EXPECT_NE(o.notes.front().find("comms_logger (line 10): every collective is recorded"), std::string::npos)
      << o.notes.front();
}

TEST(Deepspeed, ResolvesAloneForProgramsOfOnesOwn) {
  // the tutorial's setup: Adam, fp16, ZeRO-2, 32 rows per process on 4 processes
  Problems problems;
  const Resolved r = resolve_deepspeed(
      R"({"train_batch_size": 128, "optimizer": {"type": "Adam", "params": {"lr": 0.001}}, "fp16": {"enabled": true},
                                           "zero_optimization": {"stage": 2}})",
      4, problems);
  EXPECT_EQ(problems.lines, Words{});
  EXPECT_EQ(r.values.optimization.per_device_train_batch_size, 32);
  EXPECT_EQ(r.values.optimization.optim, OptimizerKind::adamw);
  EXPECT_EQ(r.values.optimization.learning_rate, 0.001);
  EXPECT_TRUE(r.values.optimization.fp16);
  EXPECT_EQ(r.values.optimization.hysteresis, 2);
  EXPECT_EQ(r.values.sharding.strategy, Strategy::zero2);
  EXPECT_EQ(r.values.parallel.num_processes, 4);
  EXPECT_EQ(r.origin("zero_stage").str(), "deepspeed:2");
  EXPECT_EQ(r.origin("strategy").str(), "derived (deepspeed:2 zero_stage 2)");
}

TEST(Deepspeed, UndecidedBatchSizesLeaveTheProgramsOwnDefaultsAlone) {
  Problems problems;
  resolve_deepspeed(R"({"train_batch_size": "auto"})", 1, problems);
  EXPECT_EQ(problems.lines,
            Words{"deepspeed:1:1: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided (or "
                  "--per_device_train_batch_size among the arguments)"});
}

TEST(Deepspeed, AutotuningIsForTheProgramThatPlans) {
  Problems problems;
  resolve_deepspeed(R"({"train_batch_size": 8, "autotuning": {"enabled": true}})", 1, problems);
  ASSERT_EQ(problems.lines.size(), 1u);
  EXPECT_NE(problems.lines.front().find("autotuning: the engine runs a module as it is"), std::string::npos)
      << problems.lines.front();
}

// ---- hostile files

// Refused in time linear in the file's size, with a bounded number of messages.
TEST(Deepspeed, HostileFilesAreRefusedAtOnce) {
  const auto repeated = [](std::string_view part, std::size_t size) {
    std::string out;
    while (out.size() < size) out += part;
    return out;
  };
  const auto files = [&](std::size_t eighths) {
    const std::size_t size = 125'000 * eighths;
    std::string keys = "{", sections = "{";
    for (int i = 0; keys.size() < size; ++i) keys += concat("k", i, ":1,");
    for (int i = 0; sections.size() < size; ++i) sections += concat("\"zero_optimizatoin", i, "\": {\"stage\": 2},");
    std::string stages = "{zero_optimization: {";
    for (int i = 0; stages.size() < 75'000 * eighths; ++i) stages += concat("stag", i, ":1,");
    return Words{keys + "}",
                 sections + "}",
                 stages + "}}",
                 repeated("{a:", size),
                 "{\"train_batch_size\": " + repeated("[", size),
                 "{\"" + repeated("x", size) + "\": 1}",
                 "{train_batch_size: \"" + repeated("9", size) + "\"}",
                 "{optimizer: {type: \"" + repeated("A", size) + "\"}}",
                 "{optimizer: {type: Adam\n params: {betas: [" + repeated("1,", 15'000 * eighths) + "]}}}",
                 "{" + repeated("\"a\":1,", size) + "}",
                 repeated("A", 175'000 * eighths),
                 "{compression_training: " + repeated("{a:", 75 * eighths) + "1" + repeated("}", 75 * eighths) + "}"};
  };
  const Words small = files(1), large = files(8);
  for (std::size_t i = 0; i < large.size(); ++i) {
    const std::string& json = large[i];
    Outcome outcome;
    EXPECT_LE(tessera::testing::growth([&] { (void)read_case(small[i]); }, [&] { outcome = read_case(json); }),
              tessera::testing::linear_growth)
        << json.substr(0, 40);
    EXPECT_FALSE(outcome.problems.empty()) << json.substr(0, 40);
    EXPECT_LE(outcome.problems.size(), 21u) << json.substr(0, 40);
    for (const std::string& line : outcome.problems) EXPECT_LT(line.size(), 1000u) << json.substr(0, 40);
  }
}

}  // namespace
}  // namespace tessera::config
