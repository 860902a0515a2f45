#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/summary.h>

namespace tessera::train {
namespace {

StepMetrics at_step(std::int64_t step, double loss = 3.25) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.grad_norm = 0.5;
  metrics.learning_rate = 3e-4;
  metrics.epoch = 0.25;
  metrics.tokens_per_second = 2048;
  metrics.step_time_ms = 12.5;
  metrics.memory_by_rank = {100, 300, 200};
  metrics.memory_kinds = {{50, 1, 2, 3, 4, 5, 35}, {250, 1, 1, 1, 1, 1, 45}, {100, 10, 20, 30, 40, 0, 0}};
  return metrics;
}

std::vector<Value> read_lines(const std::string& path) {
  std::vector<Value> lines;
  for (const std::string& text : split(read_file(path), '\n'))
    if (!text.empty()) lines.push_back(parse_json(text, path));
  return lines;
}

TEST(Metrics, ALoggedStepHasTheAgreedMembers) {
  const Value line = to_json(at_step(7));
  for (const char* key : {"step", "loss", "grad_norm", "learning_rate", "epoch", "tokens_per_second", "step_time_ms",
                          "peak_memory_bytes"})
    EXPECT_NE(line.find(key), nullptr) << key;
  EXPECT_EQ(line.find("event"), nullptr);
  EXPECT_EQ(line.at("peak_memory_bytes").as_int(), 300) << "the maximum over ranks";
  EXPECT_EQ(line.at("peak_allocated_bytes").as_int(), 100) << "all but process and reserve, the maximum over ranks";
  EXPECT_EQ(line.at("peak_memory_bytes_by_rank").items().size(), 3u);
}

TEST(Metrics, TellsWhereTimeGoes) {
  StepMetrics metrics = at_step(7);
  at(metrics.phases, Phase::backward) = 0.25;
  metrics.cpu_utilization = 0.5;
  EXPECT_FALSE(to_json(metrics).contains("mfu")) << "not known";
  metrics.flops_utilization = 0.4;
  const Value line = to_json(metrics);
  EXPECT_DOUBLE_EQ(line.at("phase_ms").at("backward").as_real(), 250);
  EXPECT_EQ(line.at("phase_ms").members().size(), phase_count);
  EXPECT_DOUBLE_EQ(line.at("mfu").as_real(), 0.4);
  EXPECT_DOUBLE_EQ(line.at("cpu_utilization").as_real(), 0.5);
}

TEST(Metrics, SkippedStepsAreSaidWhereThereCanBeSome) {
  StepMetrics metrics = at_step(20);
  EXPECT_FALSE(to_json(metrics).contains("skipped_steps"));
  EXPECT_FALSE(to_json(metrics).contains("loss_scale"));
  EXPECT_EQ(describe_skipped(metrics), "");
  metrics.skipped_steps = 0;
  metrics.loss_scale = 1024;
  EXPECT_EQ(to_json(metrics).at("skipped_steps").as_int(), 0);
  EXPECT_EQ(to_json(metrics).at("loss_scale").as_real(), 1024);
  EXPECT_EQ(describe_skipped(metrics), "");
  metrics.skipped_steps = 3;
  EXPECT_EQ(describe_skipped(metrics),
            "step 20: 3 steps since the previous log were skipped because fp16 gradients were not finite (loss scale "
            "1024 now)");
  RunTotals totals;
  totals.steps_here = 100;
  EXPECT_EQ(describe_skipped(totals), "");
  totals.skipped_steps = 4;
  totals.loss_scale = 512;
  EXPECT_EQ(to_json(totals).at("skipped_steps").as_int(), 4);
  EXPECT_EQ(describe_skipped(totals),
            "skipped: 4 of 100 steps, because gradients were not finite; weights and optimizer were left unchanged "
            "(--fp16: loss scale 512)");
}

TEST(Metrics, TheEndAsHuggingFaceTellsIt) {
  RunTotals totals;
  totals.seconds = 8;
  totals.rows = 64;
  totals.steps_here = 16;
  totals.total_flops = 1e15;
  const Value entry = hf_log_entry(totals);
  EXPECT_DOUBLE_EQ(entry.at("train_runtime").as_real(), 8);
  EXPECT_DOUBLE_EQ(entry.at("train_samples_per_second").as_real(), 8);
  EXPECT_DOUBLE_EQ(entry.at("train_steps_per_second").as_real(), 2);
  EXPECT_DOUBLE_EQ(entry.at("total_flos").as_real(), 1e15);
}

TEST(Metrics, LossesHaveNineSignificantDigits) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.jsonl");
  MetricsFile file(path, -1);
  file.append(to_json(at_step(1, 10.0 / 3.0)));
  EXPECT_NE(read_file(path).find("\"loss\":3.33333333,"), std::string::npos) << read_file(path);
}

TEST(Metrics, NotFiniteNumbersAreNamed) {
  const Value line = to_json(at_step(1, std::numeric_limits<double>::quiet_NaN()));
  EXPECT_EQ(line.at("loss").as_string(), "nan");
}

TEST(Metrics, PerplexityIsTheExponentialOfTheLoss) {
  EvalMetrics metrics;
  metrics.loss = std::log(50.0);
  EXPECT_NEAR(metrics.perplexity(), 50, 1e-12);
  EXPECT_EQ(to_json(metrics).at("event").as_string(), "eval");
  EXPECT_NEAR(to_json(metrics).at("perplexity").as_real(), 50, 1e-6);
  EXPECT_NE(describe(metrics).find("perplexity 50.00"), std::string::npos);
}

TEST(Metrics, ALossOfPairsHasNoPerplexity) {
  EvalMetrics metrics;
  metrics.loss = 0.6;
  metrics.preference.measured = true;
  EXPECT_FALSE(to_json(metrics).contains("perplexity"));
  EXPECT_TRUE(to_json(metrics).contains("eval_rewards/chosen"));
  EXPECT_EQ(describe(metrics).find("perplexity"), std::string::npos) << describe(metrics);
  RunTotals totals;
  totals.has_eval = true;
  totals.eval_loss = 0.6;
  EXPECT_TRUE(to_json(totals).contains("perplexity"));
  totals.has_perplexity = false;
  EXPECT_FALSE(to_json(totals).contains("perplexity"));
  EXPECT_TRUE(to_json(totals).contains("eval_loss"));
}

TEST(Metrics, AClassifiersShareOfRightAnswers) {
  // correctly found, predicted, actual
  const ClassMetrics two = class_metrics({3, 1, 4, 2, 4, 2});
  EXPECT_TRUE(two.measured);
  EXPECT_NEAR(two.accuracy, 4.0 / 6, 1e-12);
  EXPECT_NEAR(two.f1, 2 * 1.0 / 4, 1e-12) << "of class 1";
  const ClassMetrics four = class_metrics({1, 2, 0, 0, 2, 2, 1, 0, 1, 3, 1, 0});
  EXPECT_NEAR(four.accuracy, 3.0 / 5, 1e-12);
  EXPECT_NEAR(four.f1, (2.0 / 3 + 4.0 / 5 + 0) / 3, 1e-12) << "of the classes that occur";
  EXPECT_FALSE(class_metrics({}).measured);
}

TEST(Metrics, TheEndIsTheLastLine) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.jsonl");
  MetricsFile file(path, -1);
  file.append(to_json(at_step(1)));
  RunTotals totals;
  totals.steps = 1;
  file.append(to_json(totals));
  const auto lines = read_lines(path);
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[1].at("event").as_string(), "end");
  EXPECT_EQ(lines[1].at("reason").as_string(), "done");
}

TEST(Metrics, AResumedRunDropsWhatItMeasuresAgain) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.jsonl");
  {
    MetricsFile file(path, -1);
    for (std::int64_t step = 1; step <= 6; ++step) file.append(to_json(at_step(step)));
    EvalMetrics eval;
    eval.step = 4;
    file.append(to_json(eval));
    file.append(to_json(RunTotals{}));
  }
  MetricsFile file(path, 4);
  EXPECT_EQ(file.lines().size(), 5u);  // steps 1 to 4 and the evaluation at 4, but not the end
  file.append(to_json(at_step(5)));
  const auto lines = read_lines(path);
  ASSERT_EQ(lines.size(), 6u);
  EXPECT_EQ(lines.back().at("step").as_int(), 5);
}

TEST(Metrics, LinesThatAPowerCutHasSpoiltAreLeftOut) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.jsonl");
  write_file_atomically(path, "{\"step\": 1}\n" + std::string(300, '\0') + "\n{\"step\": 2}\n{\"ste");
  MetricsFile file(path, 4);
  EXPECT_EQ(file.lines().size(), 2u);
  EXPECT_EQ(read_file(path), "{\"step\": 1}\n{\"step\": 2}\n");
}

TEST(Metrics, ANewRunStartsAnEmptyFile) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.jsonl");
  write_file_atomically(path, "left over\n");
  MetricsFile file(path, -1);
  EXPECT_EQ(read_file(path), "");
}

TEST(Metrics, TheProcessKnowsItsMemoryAndAge) {
  EXPECT_GT(peak_resident_bytes(), 1 << 20);
  EXPECT_GE(seconds_since_process_start(), 0);
  EXPECT_LT(seconds_since_process_start(), 3600);
}

}  // namespace
}  // namespace tessera::train
