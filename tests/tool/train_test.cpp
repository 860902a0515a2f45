#include "program.h"

#include <cmath>

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
  const auto run = tessera(training("out", batch(12, 1, 8) + Strings{"--eval_steps", "4", "--save_steps", "4"}));
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
  EXPECT_NE(run.err.find("step 8/8"), std::string::npos) << "plain lines without a terminal: " << run.err;
  EXPECT_EQ(run.err.find('\r'), std::string::npos);
  EXPECT_EQ(read_json(path_join(at("out"), "trainer_state.json")).at("global_step").as_int(), 8);
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
  ASSERT_EQ(
      tessera(training("out", batch(4, 1, 4) + Strings{"--lr_scheduler_type=linear", "--warmup-steps", "2"})).exit_code,
      2)
      << "given twice with different values";
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
