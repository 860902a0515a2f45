// Settings of the training loop, each checked by its effect on a run's output.

#include "program.h"

#include <algorithm>
#include <cmath>

namespace tessera::testing {
namespace {

/// Runs of the small model; any setting may be overridden.
class TrainSettingsTest : public ToolTest {
 protected:
  /// A later flag replaces an earlier one with the same name.
  Strings with(const std::string& output, const Strings& more) const {
    const Strings all = training(output) + more;
    Strings kept;
    for (std::size_t i = 0; i < all.size();) {
      std::size_t next = i + 1;
      while (next < all.size() && !all[next].starts_with("--")) ++next;
      if (!all[i].starts_with("--") ||
          std::find(all.begin() + static_cast<std::ptrdiff_t>(next), all.end(), all[i]) == all.end())
        kept.insert(kept.end(), all.begin() + static_cast<std::ptrdiff_t>(i),
                    all.begin() + static_cast<std::ptrdiff_t>(next));
      i = next;
    }
    return kept;
  }
  launch::Captured run(const std::string& output, const Strings& more) const {
    const auto done = tessera(with(output, more));
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done;
  }
  static std::vector<double> values(const std::map<std::int64_t, double>& curve) {
    std::vector<double> out;
    for (const auto& [step, value] : curve) out.push_back(value);
    return out;
  }
  static void expect_near(const std::vector<double>& found, const std::vector<double>& expected, double bound) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], bound * std::abs(expected[i]) + 1e-15) << i;
  }
  /// The steps of events of a kind ("eval"), or of log lines ("").
  std::vector<std::int64_t> steps(const std::string& output, const std::string& event) const {
    std::vector<std::int64_t> found;
    for (const Value& line : metrics(output)) {
      const Value* kind = line.find("event");
      if ((kind == nullptr ? "" : kind->as_string()) == event) found.push_back(line.at("step").as_int());
    }
    return found;
  }
  std::string bytes(const std::string& name) const { return read_file(at(name)); }
};

using Steps = std::vector<std::int64_t>;

// Ids need no tokenizer, so a model with a tokenizer of an unknown kind can be trained on them.
TEST_F(TrainSettingsTest, TokensAreTrainedOnWithoutAReadableTokenizer) {
  run("made", batch(4, 1, 1));
  make_folders(at("odd"));
  for (const char* name : {"config.json", "model.safetensors"})
    write_file_atomically(at(concat("odd/", name)), bytes(concat("made/", name)));
  write_file_atomically(at("odd/tokenizer.json"), R"({"version": "1.0", "model": {"type": "Runes"}})");
  ASSERT_EQ(tessera({"tokenize", "--train_file", at("text.txt"), "--tokenizer_name", "byte", "--output", at("ids")})
                .exit_code,
            0);
  const auto train = [&](const std::string& data, const std::string& output) {
    return tessera(Strings{"train", "--model_name_or_path", at("odd"), "--train_file", at(data), "--block_size", "32",
                           "--output_dir", at(output)} +
                   batch(4, 1, 1));
  };
  const auto on_ids = train("ids.bin", "trained");
  EXPECT_EQ(on_ids.exit_code, 0) << on_ids.err;
  EXPECT_NE(on_ids.err.find("the model's tokenizer cannot be read"), std::string::npos) << on_ids.err;
  EXPECT_TRUE(path_exists(at("trained/model.safetensors")));
  EXPECT_FALSE(path_exists(at("trained/tokenizer.json")));
  EXPECT_EQ(train("text.txt", "refused").exit_code, 2);
}

TEST_F(TrainSettingsTest, SchedulesOfDeepSpeed) {
  run("warmup", batch(4, 1, 6) + Strings{"--lr_scheduler_type", "WarmupLR", "--lr_scheduler_kwargs",
                                         "warmup_num_steps=4,warmup_type=linear"});
  expect_near(values(curve("warmup", "learning_rate")), {0, 0, 2.5e-3, 5e-3, 7.5e-3, 1e-2}, 1e-9);
  run("cycle", batch(4, 1, 6) + Strings{"--lr_scheduler_type", "one_cycle", "--lr_scheduler_kwargs",
                                        "cycle_min_lr=1e-3,cycle_max_lr=5e-3,cycle_first_step_size=2"});
  expect_near(values(curve("cycle", "learning_rate")), {1e-3, 3e-3, 5e-3, 3e-3, 1e-3, 1e-3}, 1e-9);
  run("still",
      batch(4, 1, 6) + Strings{"--lr_scheduler_type", "one_cycle", "--lr_scheduler_kwargs",
                               "cycle_min_lr=1e-3,cycle_max_lr=5e-3,cycle_first_step_size=2,cycle_momentum=false"});
  EXPECT_EQ(curve("still").at(1), curve("cycle").at(1));
  EXPECT_NE(curve("still").at(6), curve("cycle").at(6)) << "the first beta is cycled, too";
  const auto sgd =
      run("sgd", batch(4, 1, 2) + Strings{"--optim", "sgd", "--lr_scheduler_type", "one_cycle", "--lr_scheduler_kwargs",
                                          "cycle_min_lr=1e-3,cycle_max_lr=5e-3,cycle_first_step_size=2"});
  EXPECT_TRUE(contains(sgd.err, "has no betas, so only the learning rate is cycled")) << sgd.err;
}

TEST_F(TrainSettingsTest, TheLearningRateFallsOnAPlateau) {
  // an improvement of 100 is never reached
  const Strings plateau = {"--lr_scheduler_type",   "reduce_lr_on_plateau",
                           "--lr_scheduler_kwargs", "patience=0,threshold=100,threshold_mode=abs,factor=0.5",
                           "--eval_strategy",       "steps",
                           "--eval_steps",          "2",
                           "--save_steps",          "4"};
  run("out", batch(4, 1, 8) + plateau);
  expect_near(values(curve("out", "learning_rate")), {1e-2, 1e-2, 1e-2, 1e-2, 5e-3, 5e-3, 2.5e-3, 2.5e-3}, 1e-9);
  const auto whole = curve("out");
  for (const char* gone : {"checkpoint-8"}) remove_tree(at(std::string("out/") + gone));
  run("out", batch(4, 1, 8) + plateau + Strings{"--resume_from_checkpoint", "last"});
  EXPECT_EQ(curve("out"), whole) << "the state of the schedule is in the checkpoint";
}

TEST_F(TrainSettingsTest, TheBestModelIsLeft) {
  // the largest loss is the first one
  const Strings best = {
      "--eval_strategy",     "steps", "--eval_steps", "2", "--save_steps", "2", "--load_best_model_at_end",
      "--greater_is_better", "true"};
  run("one", batch(8, 1, 6) + best);
  EXPECT_EQ(bytes("one/model.safetensors"), bytes("one/checkpoint-2/model.safetensors"));
  EXPECT_NE(bytes("one/model.safetensors"), bytes("one/checkpoint-6/model.safetensors"));
  const Value state = read_json(at("one/checkpoint-6/trainer_state.json"));
  EXPECT_EQ(state.at("best_global_step").as_int(), 2);
  EXPECT_EQ(state.at("best_model_checkpoint").as_string(), at("one/checkpoint-2"));
  for (const char* strategy : {"zero1", "full_shard"}) {
    const std::string name = concat("two_", strategy);
    const auto done = run(name, batch(4, 1, 4) + best +
                                    Strings{"--num_processes", "2", "--strategy", strategy, "--save_total_limit", "1"});
    const auto same =
        tessera({"checkpoint", "diff", at(name), at(name + "/checkpoint-2")});  // one is whole, the other one sharded
    EXPECT_TRUE(contains(same.out, "tensors, 0 different")) << strategy << same.out << same.err;
    EXPECT_TRUE(path_exists(at(name + "/checkpoint-4"))) << "the newest stays, too";
    EXPECT_TRUE(contains(done.err, "the best model (step 2")) << done.err;
  }
}

TEST_F(TrainSettingsTest, OnlyTheBestAreSaved) {
  run("out", batch(8, 1, 6) + Strings{"--eval_strategy", "steps", "--eval_steps", "2", "--save_strategy", "best",
                                      "--greater_is_better", "true"});
  EXPECT_TRUE(path_exists(at("out/checkpoint-2")));
  EXPECT_FALSE(path_exists(at("out/checkpoint-4")));
  EXPECT_FALSE(path_exists(at("out/checkpoint-6")));
}

TEST_F(TrainSettingsTest, CheckpointsOfTheModelOnly) {
  run("out", batch(4, 1, 2) + Strings{"--save_only_model"});
  EXPECT_TRUE(path_exists(at("out/checkpoint-2/model.safetensors")));
  EXPECT_TRUE(path_exists(at("out/checkpoint-2/trainer_state.json")));
  EXPECT_FALSE(path_exists(at("out/checkpoint-2/optimizer.safetensors")));
  const auto resumed =
      tessera(with("out", batch(4, 1, 4) + Strings{"--resume_from_checkpoint", at("out/checkpoint-2")}));
  EXPECT_EQ(resumed.exit_code, 2);
  EXPECT_TRUE(contains(resumed.err, "it contains only the model (--save_only_model)")) << resumed.err;
}

TEST_F(TrainSettingsTest, WhenItLogsAndEvaluates) {
  run("never", batch(4, 1, 4) + Strings{"--logging_strategy", "no"});
  EXPECT_EQ(steps("never", ""), Steps{});
  EXPECT_TRUE(std::isfinite(end_line("never").at("train_loss").as_real())) << "it is measured all the same";
  run("shares", batch(4, 1, 8) + Strings{"--logging_steps", "0.25", "--eval_strategy", "steps", "--eval_steps", "0.5",
                                         "--save_steps", "0.5"});
  EXPECT_EQ(steps("shares", ""), (Steps{2, 4, 6, 8}));
  EXPECT_EQ(steps("shares", "eval"), (Steps{4, 8}));
  EXPECT_TRUE(path_exists(at("shares/checkpoint-4")));
  run("delayed", batch(4, 1, 6) + Strings{"--eval_strategy", "steps", "--eval_steps", "2", "--eval_delay", "4"});
  EXPECT_EQ(steps("delayed", "eval"), (Steps{4, 6}));
  run("after", batch(4, 1, 2) + Strings{"--do_eval"});
  EXPECT_EQ(steps("after", "eval"), Steps{2});
}

TEST_F(TrainSettingsTest, AnEpochOfWholeSteps) {
  // the text has enough blocks for several steps of 100 rows and a remainder
  const Strings epochs = {
      "--per_device_train_batch_size", "100", "--num_train_epochs", "2", "--logging_strategy", "epoch"};
  run("kept", epochs);
  run("dropped", epochs + Strings{"--dataloader_drop_last"});
  EXPECT_EQ(end_line("dropped").at("epoch").as_real(), 2);
  EXPECT_LT(end_line("dropped").at("steps").as_int(), end_line("kept").at("steps").as_int());
  EXPECT_EQ(steps("dropped", "").size(), 2u) << "one line an epoch";
}

TEST_F(TrainSettingsTest, TheOrderOfTheRowsHasItsOwnSeed) {
  run("default", batch(4, 1, 2));
  run("same", batch(4, 1, 2) + Strings{"--data_seed", "42"});
  run("other", batch(4, 1, 2) + Strings{"--data_seed", "43"});
  EXPECT_EQ(curve("same"), curve("default"));
  EXPECT_NE(curve("other"), curve("default"));
}

TEST_F(TrainSettingsTest, AResumedRunMayTakeTheEpochsDataAgain) {
  const Strings sequential = {"--train_sampling_strategy", "sequential", "--save_steps", "2"};
  for (const char* name : {"skipping", "again"}) run(name, batch(4, 1, 2) + sequential);
  run("skipping", batch(4, 1, 3) + sequential + Strings{"--resume_from_checkpoint", "last"});
  run("again", batch(4, 1, 3) + sequential + Strings{"--resume_from_checkpoint", "last", "--ignore_data_skip"});
  EXPECT_NE(curve("again").at(3), curve("skipping").at(3));
  EXPECT_LT(curve("again").at(3), curve("again").at(1)) << "the rows of the first step, after two steps";
}

TEST_F(TrainSettingsTest, SmoothedLabelsAndNoisyEmbeddings) {
  run("plain", batch(8, 1, 6));
  run("smooth", batch(8, 1, 6) + Strings{"--label_smoothing_factor", "0.2"});
  run("two", batch(4, 1, 6) + Strings{"--label_smoothing_factor", "0.2", "--num_processes", "2"});
  EXPECT_GT(curve("smooth").at(6), curve("plain").at(6) + 0.1) << "certainty costs";
  expect_near(values(curve("two")), values(curve("smooth")), 1e-6);
  run("noisy", batch(8, 1, 6) + Strings{"--neftune_noise_alpha", "5", "--eval_on_start", "--do_eval"});
  run("still", batch(8, 1, 6) + Strings{"--eval_on_start", "--do_eval"});
  EXPECT_NE(curve("noisy").at(1), curve("still").at(1));
  EXPECT_EQ(metrics("noisy")[0].at("eval_loss").as_real(), metrics("still")[0].at("eval_loss").as_real())
      << "none in evaluation";
}

TEST_F(TrainSettingsTest, MeansOfTheRanks) {
  std::string lines;
  for (int i = 0; i < 40; ++i) {
    std::string text = "stone";
    for (int word = 0; word < i * 7 % 13; ++word) text += concat(" tile ", word);
    lines += concat("{\"text\": \"", text, "\"}\n");
  }
  write_file_atomically(at("rows.jsonl"), lines);
  const Strings rows = {"--train_file", at("rows.jsonl"), "--max_seq_length", "64", "--num_processes", "2"};
  run("all", batch(2, 1, 3) + rows);
  run("each", batch(2, 1, 3) + rows + Strings{"--no_average_tokens_across_devices"});
  EXPECT_NE(curve("each"), curve("all"));
  const Strings blocks = {"--num_processes", "2"};
  run("all_blocks", batch(2, 1, 3) + blocks);
  run("each_blocks", batch(2, 1, 3) + blocks + Strings{"--no_average_tokens_across_devices"});
  expect_near(values(curve("each_blocks")), values(curve("all_blocks")), 1e-6);  // every rank has the same number of
                                                                                 // tokens
  run("predivided", batch(2, 1, 3) + blocks + Strings{"--gradient_predivide_factor", "4"});
  expect_near(values(curve("predivided")), values(curve("all_blocks")), 1e-6);
  expect_near(values(curve("predivided", "grad_norm")), values(curve("all_blocks", "grad_norm")), 1e-5);
  // These gradients become denormal when sent and lose digits, which changes the norm.
  run("denormal", batch(2, 1, 3) + blocks + Strings{"--gradient_predivide_factor", "1e38"});
  EXPECT_NE(curve("denormal", "grad_norm"), curve("all_blocks", "grad_norm"));
}

TEST_F(TrainSettingsTest, SkippedStepsDoNotMoveTheSchedule) {
  const Strings scaled = {"--fp16", "--lr_scheduler_type", "linear", "--initial_scale_power", "26"};
  run("one", batch(4, 1, 12) + scaled);
  run("two", batch(4, 1, 12) + scaled + Strings{"--hysteresis", "2"});
  const auto one = values(curve("one", "learning_rate")), two = values(curve("two", "learning_rate"));
  EXPECT_EQ(one[1], 1e-2) << "the first steps overflow at a scale of 2^26";
  EXPECT_LT(one.back(), 1e-2);
  EXPECT_GT(two.back(), one.back()) << "it takes two overflows to lower the scale, so one step more is skipped";
}

TEST_F(TrainSettingsTest, ABatchThatFits) {
  const Strings large = {
      "--config_overrides",
      "n_layer=4,n_embd=256,n_head=4,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256",
      "--max_steps",
      "1",
      "--save_strategy",
      "no",
      "--per_device_train_batch_size",
      "256"};
  Strings limited = {"sh", "-c", "ulimit -d 600000; exec \"$@\"", "sh", program};
  const auto found = launch::run_and_capture(limited + with("found", large + Strings{"--auto_find_batch_size"}),
                                             {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
  ASSERT_EQ(found.exit_code, 0) << found.err;
  EXPECT_TRUE(contains(found.err, "256 rows per process do not fit into memory; trying 128 in 2 micro-batches"))
      << found.err;
  run("given", large + Strings{"--per_device_train_batch_size", "128", "--gradient_accumulation_steps", "2"});
  expect_near(values(curve("found")), values(curve("given")), 1e-6);
}

// Ranks of a pipeline have different stages: a batch that is too large for one rank is too large for all. How often the
// batch is halved depends on the machine (the memory its product kernels use); the sums do not.
TEST_F(TrainSettingsTest, ABatchThatFitsAPipeline) {
  std::string text;
  for (int i = 0; i < 12; ++i) text += read_file(at("text.txt"));
  write_file_atomically(at("long.txt"), text);
  const Strings large = {"--config_overrides",
                         "n_layer=4,n_embd=64,n_head=4,vocab_size=257,n_positions=64,bos_token_id=256,eos_token_id=256",
                         "--max_steps",
                         "1",
                         "--save_strategy",
                         "no",
                         "--train_file",
                         at("long.txt")};
  const Strings pipeline = {
      "--per_device_train_batch_size", "2048", "--auto_find_batch_size", "--num_processes", "2", "--pp_size", "2"};
  const auto halved = launch::run_and_capture(
      Strings{"sh", "-c", "ulimit -d 700000; exec \"$@\"", "sh", program} + with("halved", large + pipeline),
      {{"OMP_NUM_THREADS", "1"}}, tessera::testing::patience(120));
  ASSERT_EQ(halved.exit_code, 0) << halved.err;
  EXPECT_TRUE(contains(halved.err, "2048 rows per process do not fit into memory; trying 1024 in 2 micro-batches"))
      << halved.err;
  run("given", large + Strings{"--per_device_train_batch_size", "128", "--gradient_accumulation_steps", "16"});
  expect_near(values(curve("halved")), values(curve("given")), 1e-6);
}

TEST_F(TrainSettingsTest, AutomaticBatchesAreRefusedWhereOneRankCannotDecide) {
  const auto refused = tessera(with("refused", batch(4, 1, 1) + Strings{"--auto_find_batch_size", "--strategy",
                                                                        "full_shard", "--num_processes", "2"}));
  EXPECT_EQ(refused.exit_code, 2) << refused.err;
}

TEST_F(TrainSettingsTest, FullDeterminism) {
  for (const char* name : {"first", "second"}) run(name, batch(4, 2, 3) + Strings{"--full_determinism"});
  EXPECT_EQ(curve("first"), curve("second"));
  run("two", batch(4, 1, 3) + Strings{"--full_determinism", "--num_processes", "2"});
  EXPECT_EQ(curve("two"), curve("first")) << "as many micro-batches: the order of the sums is fixed";
}

TEST_F(TrainSettingsTest, EvaluationInBfloat16) {
  run("fp32", batch(4, 1, 2) + Strings{"--do_eval"});
  run("bf16", batch(4, 1, 2) + Strings{"--do_eval", "--bf16_full_eval"});
  EXPECT_EQ(curve("fp32"), curve("bf16"));
  const double exact = end_line("fp32").at("eval_loss").as_real(), narrow = end_line("bf16").at("eval_loss").as_real();
  EXPECT_NE(narrow, exact);
  EXPECT_NEAR(narrow, exact, 0.02 * exact);
}

TEST_F(TrainSettingsTest, WhatLogLinesAndReportsSay) {
  const auto done =
      run("out", batch(4, 1, 2) + Strings{"--include_num_input_tokens_seen", "all", "--run_name", "mosaic"});
  EXPECT_TRUE(contains(done.out, "'num_input_tokens_seen': 128}")) << done.out;
  EXPECT_EQ(metrics("out")[1].at("num_input_tokens_seen").as_int(), 2 * 4 * 32);
  EXPECT_TRUE(contains(bytes("out/report.html"), "mosaic: gpt2"));
  EXPECT_TRUE(path_exists(at("out/runs/mosaic")));
}

}  // namespace
}  // namespace tessera::testing
