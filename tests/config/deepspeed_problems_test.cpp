// DeepSpeed's JSON: every possible mistake, and values that conflict with other settings.

#include <tessera/config/core/fields.h>

#include "deepspeed_cases.h"

namespace tessera::config {
namespace {

// ---- values that conflict with other settings: listed together, in Hugging Face's words

TEST(DeepspeedMismatch, ListedTogether) {
  const std::string json =
      R"({"train_micro_batch_size_per_gpu": 4, "gradient_accumulation_steps": "2", "gradient_clipping": 0.5,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.1, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.01}},
    "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_max_lr": 0.2, "warmup_num_steps": 5, )"
      R"("total_num_steps": 50}},
    "fp16": {"enabled": true}, "bf16": {"enabled": false}, "zero_optimization": {"stage": 2}})";
  const Words flags = {"--per_device_train_batch_size",
                       "8",
                       "--gradient_accumulation_steps",
                       "2",
                       "--max_grad_norm",
                       "1",
                       "--learning_rate",
                       "1e-3",
                       "--adam_beta1",
                       "0.9",
                       "--adam_epsilon",
                       "1e-8",
                       "--weight_decay",
                       "0",
                       "--warmup_steps",
                       "10",
                       "--max_steps",
                       "100",
                       "--fp16",
                       "false",
                       "--zero_stage",
                       "3"};
  EXPECT_EQ(read_case(json, flags).problems,
            (Words{"deepspeed:1:96: - ds gradient_clipping=0.5 vs hf max_grad_norm=1 (--max_grad_norm): make them "
                   "equal, or remove one of them",
                   "deepspeed:2:53: - ds optimizer.params.lr=0.1 vs hf learning_rate=0.001 (--learning_rate): make "
                   "them equal, or remove one of them",
                   "deepspeed:2:109: - ds optimizer.params.weight_decay=0.01 vs hf weight_decay=0 (--weight_decay): "
                   "make them equal, or remove one of them",
                   "deepspeed:1:36: - ds train_micro_batch_size_per_gpu=4 vs hf per_device_train_batch_size=8 "
                   "(--per_device_train_batch_size): make them equal, or remove one of them",
                   "deepspeed:4:25: - ds fp16.enabled=true vs hf fp16|fp16_full_eval=false (--fp16): make them equal, "
                   "or remove one of them",
                   "deepspeed:2:67: - ds optimizer.params.betas=[0.8, 0.99] vs hf adam_beta1+adam_beta2=[0.9, 0.999] "
                   "(--adam_beta1): make them equal, or remove one of them",
                   "deepspeed:2:87: - ds optimizer.params.eps=1e-06 vs hf adam_epsilon=1e-08 (--adam_epsilon): make "
                   "them equal, or remove one of them",
                   "deepspeed:3:72: - ds scheduler.params.warmup_max_lr=0.2 vs hf learning_rate=0.001 "
                   "(--learning_rate): make them equal, or remove one of them",
                   "deepspeed:3:97: - ds scheduler.params.warmup_num_steps=5 vs hf warmup_steps=10 (--warmup_steps): "
                   "make them equal, or remove one of them",
                   "deepspeed:3:119: - ds scheduler.params.total_num_steps=50 vs hf num_training_steps "
                   "(calculated)=100 (--max_steps): make them equal, or remove one of them",
                   "deepspeed:4:91: - ds zero_optimization.stage=2 vs hf zero_stage=3 (--zero_stage): make them equal, "
                   "or remove one of them"}));
}

TEST(DeepspeedMismatch, OptimizerAndScheduler) {
  const char* json =
      R"({"optimizer": {"type": "Adam"}, "scheduler": {"type": "WarmupLR", "params": {"warmup_num_steps": 7}}})";
  EXPECT_EQ(read_case(json, {"--optim", "sgd", "--lr_scheduler_type", "linear"}).problems,
            (Words{"deepspeed:1:24: - ds optimizer.type Adam=adamw vs hf optim=sgd (--optim): make them equal, or "
                   "remove one of them"}));
  EXPECT_EQ(problem_of(json, {"--warmup_ratio", "0.1", "--max_steps", "95"}),
            "deepspeed:1:98: - ds scheduler.params.warmup_num_steps=7 vs hf warmup_steps=10 (--warmup_ratio 0.1): make "
            "them equal, or remove one of them");
  EXPECT_EQ(read_case(json, {"--warmup_ratio", "0.0625", "--max_steps", "112"}).problems, Words{});
  EXPECT_EQ(problem_of(R"({"train_batch_size": 3e15, "train_micro_batch_size_per_gpu": 2e15,
                           "gradient_accumulation_steps": 2e15})"),
            "deepspeed:1:22: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size "
            "3000000000000000 != 2000000000000000 * 2000000000000000 * 1: remove one of the three");
}

TEST(DeepspeedMismatch, ComparedAsWhatTheyMean) {
  EXPECT_EQ(settings(R"({"train_micro_batch_size_per_gpu": "8", "gradient_clipping": "1.0"})",
                     {"--per_device_train_batch_size", "8", "--max_grad_norm", "1"}),
            (Texts{{"per_device_train_batch_size", "8"}, {"max_grad_norm", "1.0"}}));
  EXPECT_EQ(settings(R"({"optimizer": {"type": "AdamW", "params": {"lr": "3e-4"}}})", {"--learning_rate", "0.0003"})
                .count("learning_rate"),
            1u);
  // a batch size that is being searched for is not a conflict
  EXPECT_EQ(settings(R"({"train_micro_batch_size_per_gpu": 4, "train_batch_size": 4})",
                     {"--per_device_train_batch_size", "8", "--auto_find_batch_size"}),
            (Texts{{"gradient_accumulation_steps", "1"}}));
  // defaults do not count as settings
  EXPECT_EQ(settings(R"({"train_micro_batch_size_per_gpu": 4})"), (Texts{{"per_device_train_batch_size", "4"}}));
}

// ---- unknown keys, and keys that DeepSpeed ignores

struct ProblemCase {
  const char *json, *problem;
};

class DeepspeedProblem : public ::testing::TestWithParam<ProblemCase> {};

TEST_P(DeepspeedProblem, Text) { EXPECT_EQ(problem_of(GetParam().json), GetParam().problem); }

INSTANTIATE_TEST_SUITE_P(
    UnknownKeys, DeepspeedProblem,
    ::testing::Values(
        // DeepSpeed's own unit/runtime/pipe/test_pipe.py
        ProblemCase{
            R"({"grandient_accumulation_steps": 1})",
            "deepspeed:1:34: unknown key grandient_accumulation_steps; did you mean gradient_accumulation_steps?"},
        ProblemCase{R"({"offload_optimizer": {"device": "cpu"}})",
                    "deepspeed:1:23: unknown key offload_optimizer; it belongs in zero_optimization"},
        ProblemCase{R"({"zero_optimization": {"stage": 2, "gradient_clipping": 1}})",
                    "deepspeed:1:57: unknown key zero_optimization.gradient_clipping; it belongs to the top level"},
        ProblemCase{R"({"zero_optimization": {"stge": 2}})",
                    "deepspeed:1:32: unknown key zero_optimization.stge; did you mean stage?"},
        ProblemCase{R"({"learning_rate": 1})",
                    "deepspeed:1:19: unknown key learning_rate; it is not a DeepSpeed key but a setting of the run: "
                    "--learning_rate"},
        ProblemCase{R"({"xyzzy": 1})", "deepspeed:1:11: unknown key xyzzy; docs/configuration.md lists the keys"},
        ProblemCase{R"({"fp16.enabled": true})",  // found by the fuzzer
                    "deepspeed:1:18: unknown key fp16.enabled; write it as enabled in the section fp16"},
        ProblemCase{
            R"({"zero_optimization": {"offload_param.device": "cpu"}})",
            "deepspeed:1:48: unknown key zero_optimization.offload_param.device; write it as device in the section "
            "zero_optimization.offload_param"},
        ProblemCase{R"({"bf16": {"xyzzy": 1}})",
                    "deepspeed:1:20: unknown key bf16.xyzzy; the keys there are enabled, bf16_optimizer_states, "
                    "bf16_master_weights_and_grads, "
                    "immediate_grad_update, loss_scale, loss_scale_window, hysteresis, min_loss_scale, "
                    "initial_scale_power, check_grad_overflow"},
        ProblemCase{R"({"optimizer": {"type": "AdamW", "lr": 1}})",
                    "deepspeed:1:39: unknown key optimizer.lr; it belongs in optimizer.params"},
        ProblemCase{R"({"comms_logger": {"enabled": false, "verbse": true}})",
                    "deepspeed:1:47: unknown key comms_logger.verbse; did you mean verbose?"}));

INSTANTIATE_TEST_SUITE_P(
    UnknownKeysOfLongSections, DeepspeedProblem,
    ::testing::Values(
        ProblemCase{R"({"zero_optimization": {"stage3_param": 1}})",
                    "deepspeed:1:40: unknown key zero_optimization.stage3_param; did you mean "
                    "stage3_param_persistence_threshold?"},
        ProblemCase{R"({"zero_optimization": {"xyzzy": 1}})",
                    "deepspeed:1:33: unknown key zero_optimization.xyzzy; docs/configuration.md lists the keys"}));

INSTANTIATE_TEST_SUITE_P(
    Kinds, DeepspeedProblem,
    ::testing::Values(
        ProblemCase{R"({"zero_optimization": 2})",
                    "deepspeed:1:23: zero_optimization is 2; it must be an object {...}"},
        ProblemCase{R"({"optimizer": "AdamW"})", "deepspeed:1:15: optimizer is 'AdamW'; it must be an object {...}"},
        ProblemCase{R"({"zero_optimization": {"stage": 4}})",
                    "deepspeed:1:33: zero_optimization.stage is 4; it must be 0, 1, 2 or 3"},
        ProblemCase{R"({"zero_optimization": {"stage": "two"}})",
                    "deepspeed:1:33: zero_optimization.stage is 'two'; it must be a whole number (2e8 is one)"},
        ProblemCase{R"({"zero_optimization": {"allgather_bucket_size": 15099494.4}})",
                    "deepspeed:1:49: zero_optimization.allgather_bucket_size is 15099494.4; it must be a whole number "
                    "(2e8 is one)"},
        ProblemCase{R"({"zero_optimization": {"overlap_comm": "maybe"}})",
                    "deepspeed:1:40: zero_optimization.overlap_comm is 'maybe'; it must be true or false"},
        ProblemCase{R"({"gradient_clipping": [1]})",
                    "deepspeed:1:23: gradient_clipping is a list; it must be a number"},
        ProblemCase{R"({"gradient_clipping": -1})", "deepspeed:1:23: gradient_clipping is -1; it must be at least 0"},
        ProblemCase{R"({"communication_data_type": "fp8"})",
                    "deepspeed:1:29: communication_data_type is 'fp8'; it must be one of fp32, bf16, fp16"}));

INSTANTIATE_TEST_SUITE_P(
    OldAndNew, DeepspeedProblem,
    ::testing::Values(
        ProblemCase{
            R"({"zero_optimization": {"stage": 2, "cpu_offload": true, "offload_optimizer": {"device": "cpu"}}})",
            "deepspeed:1:51: Cannot provide deprecated parameter 'cpu_offload' and replacing parameter "
            "'offload_optimizer' (deepspeed:1) together; remove 'cpu_offload'"},
        ProblemCase{R"({"zero_optimization": {"stage": 3, "cpu_offload_param": true, "offload_param": {}}})",
                    "deepspeed:1:57: Cannot provide deprecated parameter 'cpu_offload_param' and replacing parameter "
                    "'offload_param' (deepspeed:1) together; remove 'cpu_offload_param'"},
        ProblemCase{"{\"bf16\": {\"enabled\": true},\n\"bfloat16\": {\"enabled\": true}}",
                    "deepspeed:2:13: Cannot provide bfloat16 and bf16 (deepspeed:1) together: they are the same "
                    "parameter; keep one of them"},
        ProblemCase{R"({"zero_optimization": {"stage3_max_reuse_distance": 1, "max_reuse_distance": 2}})",
                    "deepspeed:1:78: Cannot provide zero_optimization.max_reuse_distance and "
                    "zero_optimization.stage3_max_reuse_distance (deepspeed:1) together: they are the same parameter; "
                    "keep one of them"},
        ProblemCase{R"({"zero_optimization": {"stage": 1, "legacy_stage1": true}})",
                    "deepspeed:1:53: zero_optimization.legacy_stage1: there is only one implementation of stage 1; "
                    "remove it"}));

INSTANTIATE_TEST_SUITE_P(
    WhatDeepspeedRefuses, DeepspeedProblem,
    ::testing::Values(
        ProblemCase{"{\"fp16\": {\"enabled\": true},\n\"bf16\": {\"enabled\": true}}",
                    "deepspeed:2:21: bf16.enabled and fp16.enabled (deepspeed:1): bfloat16 and fp16 modes cannot be "
                    "simultaneously enabled; switch one of them off"},
        ProblemCase{R"({"fp16": {"enabled": true, "loss_scale": -1}})",
                    "deepspeed:1:42: fp16.loss_scale is -1; it must be at least 0"},
        ProblemCase{R"({"fp16": {"enabled": true, "loss_scale": true}})",
                    "deepspeed:1:42: fp16.loss_scale is true; it must be a number"},
        ProblemCase{R"({"fp16": {"enabled": true, "loss_scale_window": 0}})",
                    "deepspeed:1:49: fp16.loss_scale_window is 0; it must be at least 1"},
        ProblemCase{R"({"fp16": {"enabled": true, "min_loss_scale": 0}})",
                    "deepspeed:1:46: fp16.min_loss_scale is 0; it must be more than 0"},
        ProblemCase{R"({"optimizer": {"type": "AdamW", "params": {"max_grad_norm": 1.0}}})",
                    "deepspeed:1:61: optimizer.params.max_grad_norm: 'max_grad_norm' is not supported as an optimizer "
                    "parameter, please switch to using the "
                    "deepspeed parameter 'gradient_clipping'"},
        ProblemCase{R"({"prescale_gradients": true, "zero_optimization": {"stage": 2}})",
                    "deepspeed:1:24: prescale_gradients: pre-scale gradients is not yet supported with ZeRO-2 with "
                    "reduce scatter enabled, which is how gradients are sharded; remove it"},
        ProblemCase{R"({"gradient_predivide_factor": 2, "zero_optimization": {"stage": 3}})",
                    "deepspeed:1:31: gradient_predivide_factor: gradient_predivide_factor != 1.0 is not yet supported "
                    "with ZeRO-3 with reduce scatter enabled, which is how gradients are sharded; remove it"},
        ProblemCase{
            R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "disk"}}})",
            "deepspeed:1:64: zero_optimization.offload_param.device is 'disk'; it must be one of none, cpu, nvme"},
        ProblemCase{R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "nvme"}}})",
                    "deepspeed:1:68: zero_optimization.offload_optimizer.device is nvme, which needs "
                    "zero_optimization.offload_optimizer.nvme_path: the folder "
                    "of its files"},
        ProblemCase{
            R"({"zero_optimization": {"stage": 3, "mics_shard_size": 2, "offload_optimizer": {"device": "cpu"}}})",
            "deepspeed:1:55: zero_optimization.mics_shard_size: MiCS cannot be combined with offloading; remove one of "
            "them"},
        ProblemCase{R"({"zero_optimization": {"stage": 2, "zero_hpz_partition_size": 2}})",
                    "deepspeed:1:63: zero_optimization.zero_hpz_partition_size is for stage 3; zero_optimization.stage "
                    "is 2: remove it, or set the stage to 3"},
        ProblemCase{R"({"optimizer": {"type": "OneBitAdam"}, "zero_optimization": {"stage": 1}})",
                    "deepspeed:1:24: optimizer.type OneBitAdam: it is not compatible with ZeRO; set "
                    "zero_optimization.stage to 0, or use AdamW"},
        ProblemCase{R"({"elasticity": {"enabled": true, "max_train_batch_size": 2000}})",
                    "deepspeed:1:16: elasticity: batch sizes that depend on the number of processes are not "
                    "implemented; set them, and use --resume_from_checkpoint to resume with any number of processes"}));

INSTANTIATE_TEST_SUITE_P(
    OptimizerAndScheduler, DeepspeedProblem,
    ::testing::Values(
        ProblemCase{R"({"optimizer": {"type": "AdamWW"}})",
                    "deepspeed:1:24: optimizer.type 'AdamWW' is unknown; did you mean AdamW? (the types are AdamW, "
                    "Adam, Adagrad, Lion, Lamb, SGD, OneBitAdam, ZeroOneAdam, OneBitLamb)"},
        ProblemCase{R"({"optimizer": {"type": "Muon"}})",
                    "deepspeed:1:24: optimizer.type Muon is not implemented: use AdamW or Lion"},
        ProblemCase{R"({"optimizer": {"params": {"lr": 1}}})",
                    "deepspeed:1:26: optimizer.params requires optimizer.type"},
        ProblemCase{
            R"({"optimizer": {"type": "Lion", "params": {"eps": 1}}})",
            "deepspeed:1:50: optimizer.params.eps is not a parameter of Lion; besides lr and weight_decay it has "
            "betas, fp32_optimizer_states"},
        ProblemCase{R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9]}}})",
                    "deepspeed:1:53: optimizer.params.betas is [0.9]; it must be two numbers: [0.9, 0.999]"},
        ProblemCase{R"({"optimizer": {"type": "AdamW", "params": {"betas": [0.9, 1]}}})",
                    "deepspeed:1:59: optimizer.params.betas is 1; it must be at least 0 and less than 1"},
        ProblemCase{R"({"scheduler": {"type": "WarmupLr2"}})",
                    "deepspeed:1:24: scheduler.type 'WarmupLr2' is unknown; did you mean WarmupLR? (the types are "
                    "WarmupLR, WarmupDecayLR, WarmupCosineLR, "
                    "OneCycle, LRRangeTest); remove the section to use --lr_scheduler_type"},
        ProblemCase{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_type": "exp"}}})",
                    "deepspeed:1:62: scheduler.params.warmup_type is 'exp'; it must be one of log, linear"},
        ProblemCase{R"({"scheduler": {"type": "WarmupLR", "params": {"total_num_steps": 9}}})",
                    "deepspeed:1:66: scheduler.params.total_num_steps is not a parameter of WarmupLR; it has "
                    "warmup_min_lr, warmup_max_lr, warmup_num_steps, warmup_type"},
        ProblemCase{R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": [1, 2]}}})",
                    "deepspeed:1:64: scheduler.params.warmup_max_lr is [1, 2]; it must be a number, at least 0"},
        ProblemCase{R"({"scheduler": {"params": {"warmup_num_steps": 9}}})",
                    "deepspeed:1:26: scheduler.params requires scheduler.type"},
        ProblemCase{R"({"scheduler": {"type": "OneCycle", "params": {"cycle_min_lr": 0.1}}})",
                    "deepspeed:1:24: scheduler.type OneCycle needs scheduler.params.cycle_max_lr"}));

}  // namespace
}  // namespace tessera::config
