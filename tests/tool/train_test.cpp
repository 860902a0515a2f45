#include "program.h"

#include <algorithm>
#include <cmath>

#include <tessera/format/safetensors/safetensors_index.h>

namespace tessera::testing {
namespace {

using TrainTest = ToolTest;

void expect_close(const std::map<std::int64_t, double>& found, const std::map<std::int64_t, double>& expected,
                  double bound) {
  ASSERT_EQ(found.size(), expected.size());
  for (const auto& [step, value] : expected) {
    ASSERT_TRUE(found.contains(step)) << step;
    EXPECT_LE(std::abs(found.at(step) - value), bound * std::abs(value))
        << "step " << step << ": " << found.at(step) << " and " << value;
  }
}

TEST_F(TrainTest, LeavesAFolderThatOthersCanUse) {
  const auto run = tessera(
      training("out", batch(12, 1, 8) + Strings{"--eval_strategy", "steps", "--eval_steps", "4", "--save_steps", "4"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  for (const char* name : {"config.json", "model.safetensors", "tokenizer_config.json", "trainer_state.json",
                           "metrics.jsonl", "report.html", "checkpoint-4/manifest.json",
                           "checkpoint-4/model.safetensors", "checkpoint-8/trainer_state.json"})
    EXPECT_TRUE(path_exists(path_join(at("out"), name))) << name;

  const auto loss = curve("out");
  ASSERT_EQ(loss.size(), 8u);
  EXPECT_NEAR(loss.at(1), std::log(257.0), 0.2) << "an untrained model knows nothing";
  EXPECT_LT(loss.at(8), loss.at(1) - 0.5);
  const Value end = end_line("out");
  EXPECT_EQ(end.at("event").as_string(), "end");
  EXPECT_EQ(end.at("reason").as_string(), "done");
  EXPECT_EQ(end.at("steps").as_int(), 8);
  EXPECT_EQ(end.at("tokens").as_int(), 8 * 12 * 32);
  EXPECT_TRUE(std::isfinite(end.at("eval_loss").as_real()));
  EXPECT_EQ(run.err.find('\r'), std::string::npos) << "no rewriting line without a terminal";
  EXPECT_TRUE(contains(run.err, "-bound: ")) << "advice at the end: " << run.err;
  const Value state = read_json(path_join(at("out"), "trainer_state.json"));
  EXPECT_EQ(state.at("global_step").as_int(), 8);
  EXPECT_EQ(state.at("num_input_tokens_seen").as_int(), 8 * 12 * 32);
  EXPECT_GT(state.at("total_flos").as_real(), 0);
  EXPECT_NE(state.at("log_history").items().back().find("train_runtime"), nullptr);
  EXPECT_EQ(read_file(path_join(at("out"), "model.safetensors")),
            read_file(path_join(at("out"), "checkpoint-8/model.safetensors")));
}

TEST_F(TrainTest, TwoProcessesEqualOne) {
  const auto one = tessera(training("one", batch(12, 1, 6)));
  ASSERT_EQ(one.exit_code, 0) << one.err;
  const auto two = tessera(training("two", batch(3, 2, 6) + Strings{"--num_processes", "2"}));
  ASSERT_EQ(two.exit_code, 0) << two.err;
  expect_close(curve("two"), curve("one"), 1e-6);
  expect_close(curve("two", "grad_norm"), curve("one", "grad_norm"), 1e-5);
  EXPECT_EQ(metrics("two")[0].at("peak_memory_bytes_by_rank").items().size(), 2u);
}

TEST_F(TrainTest, LogLinesAsHuggingFacePrintsThem) {
  const auto run = tessera(training("out", batch(12, 1, 2) + Strings{"--eval_strategy", "steps", "--eval_steps", "2"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Strings lines = split(trim(run.out), '\n');
  ASSERT_EQ(lines.size(), 4u) << run.out;
  EXPECT_TRUE(lines[0].starts_with("{'loss': 5.") && contains(lines[0], ", 'learning_rate': 0.01, 'epoch': "))
      << lines[0];
  EXPECT_TRUE(lines[2].starts_with("{'eval_loss': ")) << lines[2];
  EXPECT_TRUE(lines[3].starts_with("{'train_runtime': ")) << lines[3];

  const auto plain = tessera(training("plain", batch(12, 1, 2) + Strings{"--log_format", "plain"}));
  ASSERT_EQ(plain.exit_code, 0) << plain.err;
  EXPECT_EQ(plain.out, "");
  EXPECT_TRUE(contains(plain.err, "step 2/2 (100%)")) << plain.err;
}

TEST_F(TrainTest, TheLossAsHuggingFaceScalesIt) {
  ASSERT_EQ(tessera(training("own", batch(6, 2, 3))).exit_code, 0);
  ASSERT_EQ(tessera(training("theirs", batch(3, 2, 3) + Strings{"--hf_loss_scale", "--num_processes", "2"})).exit_code,
            0);
  auto expected = curve("own");
  for (auto& [step, loss] : expected)
    loss *= 31.0 / 32.0;  // the first token of a block is a label without a prediction
  expect_close(curve("theirs"), expected, 1e-6);
  expect_close(curve("theirs", "grad_norm"), curve("own", "grad_norm"), 1e-5);
}

TEST_F(TrainTest, EventsForTensorBoard) {
  ASSERT_EQ(tessera(training("out", batch(12, 1, 2))).exit_code, 0);
  const Strings events = files("out/runs");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(contains(events[0], "events.out.tfevents.")) << events[0];
  const std::string bytes = read_file(at(events[0]));
  for (const char* tag : {"brain.Event:2", "train/loss", "train/grad_norm", "train/learning_rate", "args/text_summary"})
    EXPECT_TRUE(contains(bytes, tag)) << tag;

  ASSERT_EQ(tessera(training("none", batch(12, 1, 2) + Strings{"--report_to", "none"})).exit_code, 0);
  EXPECT_FALSE(path_exists(at("none/runs")));
  ASSERT_EQ(tessera(training("other", batch(12, 1, 2) +
                                          Strings{"--logging_dir", at("events"), "--metrics_file", at("run.prom")}))
                .exit_code,
            0);
  const std::string prom = read_file(at("run.prom"));
  EXPECT_TRUE(contains(prom, "tessera_steps_total{job=\"other\"} 2\n")) << prom;
  EXPECT_TRUE(contains(prom, "tessera_running{job=\"other\"} 0\n")) << prom;
  const auto nowhere = tessera(training("nowhere", batch(12, 1, 2) + Strings{"--metrics_file", at("no/run.prom")}));
  EXPECT_EQ(nowhere.exit_code, 2) << nowhere.err;
  EXPECT_TRUE(contains(nowhere.err, "no/run.prom: no such folder")) << nowhere.err;
  EXPECT_FALSE(path_exists(at("nowhere")));
  EXPECT_FALSE(path_exists(at("other/runs")));
  EXPECT_EQ(files("events").size(), 1u);
}

TEST_F(TrainTest, TheFirstStepIsLoggedWhenAsked) {
  Strings arguments = training("out", batch(12, 1, 4) + Strings{"--logging_first_step"});
  *(std::find(arguments.begin(), arguments.end(), "--logging_steps") + 1) = "3";
  ASSERT_EQ(tessera(arguments).exit_code, 0);
  const auto loss = curve("out");
  EXPECT_TRUE(loss.contains(1) && loss.contains(3) && loss.contains(4) && !loss.contains(2));
}

TEST_F(TrainTest, MixedPrecisionLearnsTheSame) {
  ASSERT_EQ(tessera(training("fp32", batch(12, 1, 6))).exit_code, 0);
  const auto run = tessera(training("bf16", batch(12, 1, 6) + Strings{"--bf16"}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  expect_close(curve("bf16"), curve("fp32"), 2e-2);
  EXPECT_NE(curve("bf16"), curve("fp32")) << "bf16 was not used";
}

TEST_F(TrainTest, AnyLauncherWillDo) {
  const auto direct = tessera(training("direct", batch(6, 1, 3) + Strings{"--num_processes", "2"}));
  ASSERT_EQ(direct.exit_code, 0) << direct.err;
  const auto launched =
      tessera(Strings{"launch", "--num_processes", "2", program} + training("launched", batch(6, 1, 3)));
  ASSERT_EQ(launched.exit_code, 0) << launched.err;
  EXPECT_EQ(curve("launched"), curve("direct"));
}

TEST_F(TrainTest, AFinishedModelIsAStartingPoint) {
  ASSERT_EQ(tessera(training("first", batch(12, 1, 8))).exit_code, 0);
  const auto second = tessera({"train", "--model_name_or_path", at("first"), "--train_file", at("text.txt"),
                               "--block_size", "32", "--per_device_train_batch_size", "12", "--max_steps", "2",
                               "--logging_steps", "1", "--output_dir", at("second")});
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_LT(curve("second").at(1), curve("first").at(1) - 0.5);
}

TEST_F(TrainTest, SequentialAndRandomTakeDifferentRows) {
  ASSERT_EQ(tessera(training("random", batch(4, 1, 2))).exit_code, 0);
  ASSERT_EQ(
      tessera(training("sequential", batch(4, 1, 2) + Strings{"--train_sampling_strategy", "sequential"})).exit_code,
      0);
  EXPECT_NE(curve("random"), curve("sequential"));
}

TEST_F(TrainTest, WarmupStartsAtZero) {
  const auto twice = tessera(training("twice", batch(4, 1, 4) + Strings{"--lr_scheduler_type=linear"}));
  ASSERT_EQ(twice.exit_code, 0) << twice.err;
  EXPECT_NE(twice.err.find("--lr_scheduler_type is given twice: linear is used, not constant"), std::string::npos)
      << twice.err;
  Strings arguments = training("out", batch(4, 1, 4) + Strings{"--warmup-steps", "2"});
  for (std::string& word : arguments)
    if (word == "constant") word = "linear";
  const auto run = tessera(arguments);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto rate = curve("out", "learning_rate");
  EXPECT_EQ(rate.at(1), 0);
  EXPECT_NEAR(rate.at(2), 5e-3, 1e-12);
  EXPECT_NEAR(rate.at(3), 1e-2, 1e-12);
  EXPECT_NEAR(rate.at(4), 5e-3, 1e-12);
}

TEST_F(TrainTest, ADivergedRunSaysSoOnce) {
  Strings arguments = training("out", batch(4, 1, 50));
  for (std::string& word : arguments)
    if (word == "1e-2") word = "1e30";
  for (const char* processes : {"1", "2"}) {
    const auto run = tessera(arguments + Strings{"--num_processes", processes, "--overwrite_output_dir"});
    EXPECT_EQ(run.exit_code, 1) << run.err;
    const std::size_t first = run.err.find("the training diverged");
    ASSERT_NE(first, std::string::npos) << run.err;
    EXPECT_EQ(run.err.find("the training diverged", first + 1), std::string::npos) << run.err;
  }
}

TEST_F(TrainTest, StepsThatAreNotFiniteAreSkippedAlikeAndNotForEver) {
  Strings arguments =
      training("out", batch(4, 1, 6) + Strings{"--nan_policy", "skip", "--overwrite_output_dir", "--save_steps", "3"});
  for (std::string& word : arguments)
    if (word == "1e-2") word = "1e30";  // the first step is taken; with its weights, no later step is finite
  for (const Strings& more : {Strings{"--num_processes", "1"}, Strings{"--num_processes", "2"},
                              Strings{"--num_processes", "2", "--fsdp", "full_shard"}}) {
    const auto run = tessera(arguments + more);
    EXPECT_TRUE(contains(run.err, "the model's logits are not finite"))
        << "all steps were done; what the first one left cannot write: " << run.err;
    EXPECT_TRUE(contains(run.err, "step 2 is skipped (--nan_policy skip; 1 in a row, at most 10)")) << run.err;
    EXPECT_TRUE(contains(run.err, "step 6 is skipped (--nan_policy skip; 5 in a row, at most 10)")) << run.err;
    const auto first = format::SafetensorsFolder(at("out/checkpoint-3")),
               last = format::SafetensorsFolder(at("out/checkpoint-6"));
    ASSERT_EQ(first.tensors().size(), last.tensors().size());
    for (const auto& stored : last.tensors()) {
      const auto now = last.bytes(stored), before = first.bytes(*first.find(stored.info.name));
      EXPECT_TRUE(std::equal(now.begin(), now.end(), before.begin(), before.end()))
          << stored.info.name << " was changed by a step that was skipped";
    }
    const auto limited = tessera(arguments + more + Strings{"--nan_skip_limit", "2"});
    EXPECT_EQ(limited.exit_code, 1) << limited.err;
    EXPECT_TRUE(contains(limited.err, "step 4: the gradient norm is ")) << limited.err;
    EXPECT_TRUE(contains(limited.err, " after 2 consecutive skipped steps")) << limited.err;
  }
}

TEST_F(TrainTest, OverwritingRemovesTheFormerRun) {
  const Strings first = training("out", batch(4, 1, 4) + Strings{"--save_steps", "2"});
  const Strings second = training("out", batch(4, 1, 3) + Strings{"--overwrite_output_dir"});
  ASSERT_EQ(tessera(first).exit_code, 0);
  EXPECT_EQ(tessera(first).exit_code, 2) << "not without being told";
  const auto run = tessera(second);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_FALSE(path_exists(path_join(at("out"), "checkpoint-4")));
  EXPECT_TRUE(path_exists(path_join(at("out"), "checkpoint-3")));
  EXPECT_EQ(curve("out").size(), 3u);
}

}  // namespace
}  // namespace tessera::testing
