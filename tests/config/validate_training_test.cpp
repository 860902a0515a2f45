// The rules between the settings of the training loop: every message, and settings without effect.

#include <tessera/config/resolve/resolve.h>
#include <tessera/config/rules/checkpointing.h>

#include <gtest/gtest.h>
#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>

#include <tests/error_of.h>

namespace tessera::config {
namespace {

using Words = std::vector<std::string>;

class ValidateTraining : public ::testing::Test {
 protected:
  ValidateTraining() { write_file_atomically(path("text.txt"), "In the beginning\n"); }

  std::string path(const std::string& name) const { return path_join(folder_.path(), name); }

  Words complete(const Words& more) const {
    Words all = {"--config_name", "gpt2-tiny", "--train_file", path("text.txt"), "--output_dir", path("out")};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  static std::optional<std::string> no_environment(const std::string&) { return std::nullopt; }

  std::string error_of(const Words& more) const {
    return tessera::testing::error_of([&] { resolve_and_validate(complete(more), no_environment); });
  }
  Words unused(const Words& more) const { return unused_settings(resolve_flags(complete(more), no_environment)); }

  TemporaryFolder folder_;
};

TEST_F(ValidateTraining, LittleLanguagesAreReadBeforeAProcessStarts) {
  EXPECT_EQ(error_of({"--optim", "adagrad", "--optim_args", "lr_decai=1"}),
            "--optim_args: parameter of adagrad 'lr_decai' is unknown; did you mean 'lr_decay'? (known: lr_decay, "
            "initial_accumulator_value, eps)");
  EXPECT_EQ(error_of({"--optim_args", "beta"}), "--optim_args: 'beta' has no '=' (expected key=value,key=value)");
  EXPECT_EQ(error_of({"--optim_args", "beta1=2"}),
            "--optim_args: beta1 of adamw is 2; it must be at least 0 and below 1");
  EXPECT_EQ(error_of({"--optim", "adafactor", "--optim_args", "decay_rate=0.8"}),
            "--optim_args: decay_rate of adafactor is 0.8; it must be below 0");
  EXPECT_NE(error_of({"--optim", "sgd", "--optim_args", "nesterov=2"}).find("--optim_args"), std::string::npos);
  EXPECT_EQ(error_of({"--lr_scheduler_type", "constant", "--lr_scheduler_kwargs", "power=2"}),
            "--lr_scheduler_kwargs: parameter of constant 'power' is unknown (it has none)");
  EXPECT_NE(error_of({"--lr_scheduler_type", "polynomial", "--lr_scheduler_kwargs", "power=two"})
                .find("--lr_scheduler_kwargs"),
            std::string::npos);
  EXPECT_EQ(error_of({"--lr_scheduler_type", "polynomial", "--lr_scheduler_kwargs", "power=2"}), "");
  EXPECT_NE(error_of({"--column_map", "question=prompt"}).find("--column_map"), std::string::npos);
  // adafactor's own rates exclude --decoupled_lr only when they are requested
  const Words adafactor = {"--optim", "adafactor", "--decoupled_lr", "1e-3", "--optim_args"};
  const auto with = [&](Words words, const char* more) {
    words.emplace_back(more);
    return error_of(words);
  };
  EXPECT_NE(with(adafactor, "relative_step=true").find("relative_step"), std::string::npos);
  EXPECT_EQ(with(adafactor, "relative_step=false"), "");
}

TEST_F(ValidateTraining, StepsMayBeShares) {
  EXPECT_EQ(error_of({"--logging_steps", "0.1", "--save_steps", "0.5", "--eval_steps", "0.25"}), "");
  EXPECT_EQ(error_of({"--save_steps", "2.5"}),
            "--save_steps is 2.5; it must be a whole number of steps, or, between 0 and 1, a share of all steps");
  EXPECT_EQ(error_of({"--logging_steps", "0"}),
            "--logging_steps is 0: set the steps between two lines of metrics, or use --logging_strategy no");
  EXPECT_EQ(error_of({"--save_steps", "0"}),
            "--save_steps is 0: set the steps between two checkpoints, or use --save_strategy no");
  EXPECT_EQ(error_of({"--save_steps", "0", "--save_strategy", "no", "--logging_steps", "0", "--logging_strategy", "no",
                      "--eval_steps", "0"}),
            "");
  const Resolved resolved = resolve_flags({"--save_steps", "20", "--logging_steps", "0.5"}, no_environment);
  const Value output = to_value(resolved).at("output");
  EXPECT_EQ(dump_json(output.at("save_steps").at("value"), -1), "20");
  EXPECT_EQ(dump_json(output.at("logging_steps").at("value"), -1), "0.5");
}

TEST_F(ValidateTraining, RatesOfEmbeddings) {
  EXPECT_EQ(error_of({"--decoupled_lr", "1e-3"}), "");
  EXPECT_EQ(error_of({"--embedding_learning_rate", "1e-3", "--lr_scheduler_type", "cosine_with_min_lr",
                      "--lr_scheduler_kwargs", "min_lr=1e-5", "--decoupled_min_lr", "1e-4"}),
            "");
  EXPECT_EQ(error_of({"--decoupled_min_lr", "1e-4"}),
            "--decoupled_min_lr needs --decoupled_lr, the peak of the same parameters");
  EXPECT_EQ(error_of({"--decoupled_lr", "1e-3", "--decoupled_min_lr", "1e-4"}),
            "--decoupled_min_lr is not supported by --lr_scheduler_type linear, which has no minimum rate: use "
            "cosine_with_min_lr or polynomial");
  EXPECT_EQ(error_of({"--decoupled_lr", "1e-3", "--decoupled_min_lr", "1e-2", "--lr_scheduler_type", "polynomial"}),
            "--decoupled_min_lr is above --decoupled_lr 0.001, the peak");
  EXPECT_EQ(error_of({"--decoupled_lr", "1e-3", "--lr_scheduler_type", "one_cycle"}),
            "--decoupled_lr is not supported by --lr_scheduler_type one_cycle, which sets one learning rate for all "
            "parameters: remove it, or use cosine or linear");
  EXPECT_EQ(error_of({"--decoupled_lr", "1e-3", "--optim", "adafactor", "--optim_args", "relative_step=true"}),
            "--decoupled_lr has no effect with adafactor's relative_step, which computes its own learning rates: "
            "remove one of them");
  EXPECT_EQ(unused({"--decoupled_lr", "1e-3", "--lora_r", "4"}),
            Words{"--decoupled_lr has no effect: --lora_r trains adapters, not embeddings and the head "
                  "(--lora_modules_to_save)"});
}

TEST_F(ValidateTraining, BatchesThatGrowInPipelines) {
  const auto with = [&](const std::string& schedule) {
    return error_of({"--pp_size", "2", "--num_processes", "2", "--per_device_train_batch_size", "2",
                     "--gradient_accumulation_steps", "6", "--batch_size_schedule", "2,2,24", "--pipeline_schedule",
                     schedule});
  };
  EXPECT_EQ(with("1f1b"), "");
  EXPECT_EQ(with("interleaved_1f1b"), "");
  write_file_atomically(path("order.csv"), "0F0,0F1,,0B0,0B1\n");
  const std::string error = with(path("order.csv"));
  const std::string rule = concat("--pipeline_schedule ", path("order.csv"),
                                  " is a file with a fixed number of micro-batches, but the steps of "
                                  "--batch_size_schedule have different sizes: use a schedule by name, such as 1f1b");
  EXPECT_NE(error.find(rule), std::string::npos) << error;
}

TEST_F(ValidateTraining, MuonNeedsWholeMatrices) {
  EXPECT_EQ(error_of({"--optim", "muon", "--zero_stage", "3", "--num_processes", "2"}), "");
  EXPECT_EQ(error_of({"--optim", "muon", "--tp_size", "2", "--num_processes", "2"}),
            "--optim muon needs whole matrices to orthogonalize, but a process has 1/2 (tp_size 2); "
            "that is not implemented: use adamw, adam, sgd, lion, adagrad or rmsprop, or --tp_size 1");
}

TEST_F(ValidateTraining, EightBitStatesAreForTheCpuAndNotInBfloat16Too) {
  EXPECT_EQ(error_of({"--optim", "adamw_8bit", "--zero_stage", "3", "--num_processes", "2"}), "");
  EXPECT_EQ(
      error_of({"--optim", "lion_8bit", "--bf16_optimizer_states"}),
      "--optim lion_8bit contradicts --bf16_optimizer_states: the first stores moments in 8 bits; remove one of them");
  EXPECT_EQ(error_of({"--optim", "adamw_bnb_8bit", "--device", "cuda"}),
            "--optim adamw_8bit with --device cuda: 8-bit states are implemented only on the CPU; use --device cpu, or "
            "--optim adamw --bf16_optimizer_states");
}

TEST_F(ValidateTraining, SchedulesOfOtherSystems) {
  EXPECT_EQ(error_of({"--lr_scheduler_type", "WarmupDecayLR", "--lr_scheduler_kwargs", "warmup_num_steps=5"}), "");
  EXPECT_EQ(resolve_flags({"--lr_scheduler_type", "OneCycle"}, no_environment).values.optimization.lr_scheduler_type,
            ScheduleType::one_cycle);
  EXPECT_EQ(error_of({"--lr_scheduler_type", "reduce_lr_on_plateau"}),
            "--lr_scheduler_type reduce_lr_on_plateau depends on evaluations, but --eval_strategy is no: use "
            "--eval_strategy steps or epoch");
  EXPECT_EQ(error_of({"--lr_scheduler_type", "reduce_lr_on_plateau", "--eval_strategy", "epoch"}), "");
  EXPECT_EQ(unused({"--lr_scheduler_type", "lr_range_test", "--learning_rate", "1", "--warmup_steps", "5"}),
            (Words{"--warmup_steps has no effect: --lr_scheduler_type lr_range_test has no warm-up",
                   "--learning_rate has no effect: --lr_scheduler_type lr_range_test has its own learning rates "
                   "(--lr_scheduler_kwargs)"}));
}

TEST_F(ValidateTraining, TheBestModel) {
  const Words best = {"--load_best_model_at_end"};
  const auto with = [&](const Words& more) {
    Words all = best;
    all.insert(all.end(), more.begin(), more.end());
    return error_of(all);
  };
  EXPECT_EQ(with({}),
            "--load_best_model_at_end needs an --eval_strategy that equals --save_strategy, so that evaluated states "
            "are saved; they are no and "
            "steps (--save_strategy best works with either)");
  EXPECT_EQ(with({"--save_strategy", "no"}),
            "--load_best_model_at_end needs evaluations and checkpoints: use --eval_strategy and --save_strategy steps "
            "or epoch");
  EXPECT_EQ(with({"--eval_strategy", "epoch", "--save_strategy", "epoch"}), "");
  EXPECT_EQ(with({"--eval_strategy", "epoch", "--save_strategy", "best"}), "");
  EXPECT_EQ(with({"--eval_strategy", "steps", "--eval_steps", "20", "--save_steps", "40"}), "");
  EXPECT_EQ(with({"--eval_strategy", "steps", "--eval_steps", "20", "--save_steps", "50"}),
            "--load_best_model_at_end needs a --save_steps that is a multiple of --eval_steps, so that evaluated "
            "states are saved; 50 is not a multiple of 20");
  EXPECT_EQ(with({"--eval_strategy", "steps", "--eval_steps", "0.1", "--save_steps", "0.3"}), "");
  EXPECT_EQ(with({"--eval_strategy", "steps", "--eval_steps", "0.1", "--save_steps", "50"}),
            "--load_best_model_at_end needs a --save_steps (50) that is a multiple of --eval_steps (0.1): set both as "
            "numbers of steps, or both as shares");
  EXPECT_EQ(
      error_of({"--save_strategy", "best"}),
      "--save_strategy best saves after evaluations, but --eval_strategy is no: use --eval_strategy steps or epoch");
  EXPECT_EQ(with({"--metric_for_best_model", "eval_los", "--eval_strategy", "epoch", "--save_strategy", "epoch"}),
            "--metric_for_best_model is 'eval_los'; did you mean eval_loss? (evaluations have loss and perplexity, for "
            "classifiers loss, accuracy and f1)");
  EXPECT_EQ(unused({"--greater_is_better", "true"}),
            Words{"--greater_is_better has no effect: no best model is requested (--load_best_model_at_end, "
                  "--save_strategy best)"});
}

TEST_F(ValidateTraining, Evaluating) {
  EXPECT_EQ(error_of({"--do_eval"}), "");
  EXPECT_EQ(error_of({"--do_eval", "--validation_split_percentage", "0"}),
            "--do_eval has no evaluation data: use --validation_file, or a --validation_split_percentage above 0");
  EXPECT_EQ(error_of({"--bf16_full_eval", "--fp16_full_eval", "--do_eval"}),
            "--bf16_full_eval and --fp16_full_eval exclude each other: use only one of them");
  EXPECT_EQ(unused({"--bf16_full_eval"}),
            Words{"--bf16_full_eval has no effect: nothing is evaluated (--eval_strategy)"});
  EXPECT_EQ(unused({"--eval_delay", "3"}), Words{"--eval_delay has no effect: --eval_strategy is no"});
  EXPECT_EQ(unused({"--logging_strategy", "epoch", "--logging_steps", "3"}),
            Words{"--logging_steps has no effect: --logging_strategy is epoch"});
}

TEST_F(ValidateTraining, FindingTheBatchSize) {
  EXPECT_EQ(error_of({"--auto_find_batch_size", "--num_processes", "2"}), "");
  EXPECT_EQ(error_of({"--auto_find_batch_size", "--num_processes", "2", "--zero_stage", "1"}), "");
  EXPECT_EQ(error_of({"--auto_find_batch_size", "--fsdp", "full_shard"}), "");
  EXPECT_EQ(
      error_of({"--auto_find_batch_size", "--fsdp", "full_shard", "--num_processes", "2"}),
      "--auto_find_batch_size: with the strategy full_shard over 2 processes, forward and backward are "
      "collective, and a process that runs out of memory would leave the others waiting; use ddp or zero1, or set "
      "--per_device_train_batch_size manually");
  EXPECT_EQ(error_of({"--auto_find_batch_size", "--deterministic_reduce"}),
            "--auto_find_batch_size contradicts --deterministic_reduce: the micro-batches determine the order of "
            "summation; set --per_device_train_batch_size manually");
}

TEST_F(ValidateTraining, WhatIsRecomputed) {
  EXPECT_EQ(parse_checkpoint_plan("{\"use_reentrant\": false, \"every\": 2}").every, 2);
  const layout::CheckpointPlan plan = parse_checkpoint_plan("part=attn,names=h.*,offload_inputs_to=/tmp");
  EXPECT_EQ(plan.part, layout::CheckpointPart::attention);
  EXPECT_EQ(plan.names, "h.*");
  EXPECT_EQ(plan.offload_inputs_to, "/tmp");
  const auto refused = [](const char* text) { return testing::error_of([&] { parse_checkpoint_plan(text); }); };
  EXPECT_EQ(refused("evry=2"), "--gradient_checkpointing_kwargs: unknown key evry; did you mean every?");
  EXPECT_EQ(refused("every=0"), "--gradient_checkpointing_kwargs: every is 0; it must be at least 1");
  EXPECT_EQ(refused("part=half"),
            "--gradient_checkpointing_kwargs: part is 'half'; it must be one of block (full), attention (attn, "
            "selective), mlp");
  EXPECT_NE(refused("names=h.(1").find("--gradient_checkpointing_kwargs: names 'h.(1' is not a regular expression"),
            std::string::npos);
}

TEST_F(ValidateTraining, OtherContradictions) {
  EXPECT_EQ(error_of({"--no_average_tokens_across_devices", "--deterministic_reduce"}),
            "--no_average_tokens_across_devices contradicts --deterministic_reduce: the mean of the processes' means "
            "depends on their number");
  EXPECT_EQ(error_of({"--save_only_model", "--max_restarts", "2"}),
            "--save_only_model contradicts --max_restarts 2: restarts need checkpoints with the optimizer's state");
  EXPECT_EQ(unused({"--hysteresis", "2"}), Words{"--hysteresis has no effect: --fp16 is not given"});
  EXPECT_EQ(unused({"--hysteresis", "2", "--fp16", "--loss_scale", "8"}),
            Words{"--hysteresis has no effect: --loss_scale is fixed"});
  EXPECT_EQ(unused({"--ignore_data_skip"}),
            Words{"--ignore_data_skip has no effect: no run is resumed (--resume_from_checkpoint)"});
  EXPECT_EQ(unused({"--data_seed", "3", "--train_sampling_strategy", "sequential"}),
            Words{"--data_seed has no effect: --train_sampling_strategy is sequential"});
  EXPECT_EQ(unused({"--gradient_predivide_factor", "2", "--num_processes", "1"}),
            Words{"--gradient_predivide_factor has no effect: there is only one process"});
  EXPECT_EQ(unused({"--save_only_model", "--save_strategy", "no"}),
            Words{"--save_only_model has no effect: --save_strategy is no"});
}

}  // namespace
}  // namespace tessera::config
