// A log of any length in bounded memory: which lines are kept in memory, in the report, and from the file after a
// restart.

#include <gtest/gtest.h>

#include <tessera/base/file.h>
#include <tessera/train/reporting/log_sample.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/report.h>
#include <tests/growth.h>

#include <malloc.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

namespace tessera::train {
namespace {

StepMetrics logged_at(std::int64_t step, double loss = 3.25) {
  StepMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  metrics.grad_norm = 1;
  metrics.step_time_ms = 12.5;
  metrics.memory_by_rank = {100, 300};
  return metrics;
}

EvalMetrics evaluated_at(std::int64_t step, double loss) {
  EvalMetrics metrics;
  metrics.step = step;
  metrics.loss = loss;
  return metrics;
}

std::vector<Value> values(const MetricsLines& lines) {
  std::vector<Value> all;
  for (const auto& line : lines) all.push_back(parse_json(*line, "line"));
  return all;
}

std::size_t bytes_in_use() { return ::mallinfo2().uordblks + ::mallinfo2().hblkhd; }

std::size_t rendered_bytes(const MetricsFile& file) {
  Report report;
  report.metrics = file.lines();
  return render(report).size();
}

void append_steps(MetricsFile& file, std::int64_t begin, std::int64_t end) {
  for (std::int64_t step = begin; step < end; ++step) {
    file.append(to_json(logged_at(step, step == 33'333 ? 99 : 3.25)));
    if (step % 10 == 0) file.append(to_json(evaluated_at(step, step == 50'000 ? 77 : 4)));
  }
}

TEST(LogSample, KindsAreToldApart) {
  const LogPoint step = log_point(to_json(logged_at(7, 2)));
  EXPECT_EQ(step.kind, LogPoint::Kind::step);
  EXPECT_EQ(step.step, 7);
  EXPECT_EQ(step.peaks, (std::array<double, 4>{2, -2, 1, 12.5}));
  const LogPoint evaluation = log_point(to_json(evaluated_at(8, 5)));
  EXPECT_EQ(evaluation.kind, LogPoint::Kind::evaluation);
  EXPECT_EQ(evaluation.peaks[0], 5);
  EXPECT_EQ(log_point(to_json(RunTotals{})).kind, LogPoint::Kind::end);
  // trainer_state.json's
  EXPECT_EQ(log_point(hf_log_entry(logged_at(7))).kind, LogPoint::Kind::step);
  EXPECT_EQ(log_point(hf_log_entry(evaluated_at(7, 1))).kind, LogPoint::Kind::evaluation);
  EXPECT_EQ(log_point(hf_log_entry(RunTotals{})).kind, LogPoint::Kind::end);
}

TEST(LogSample, ATextHasThePointOfItsValue) {
  for (const Value& line : {to_json(logged_at(7, 2)), to_json(logged_at(8, std::numeric_limits<double>::infinity())),
                            to_json(evaluated_at(9, 5)), to_json(RunTotals{}), hf_log_entry(evaluated_at(7, 1))}) {
    const std::string text = dump_json(line, -1);
    const LogPoint expected = log_point(line);
    const auto found = read_log_point(text);
    ASSERT_TRUE(found) << text;
    EXPECT_EQ(found->kind, expected.kind) << text;
    EXPECT_EQ(found->step, expected.step) << text;
    for (std::size_t i = 0; i < expected.peaks.size(); ++i)
      EXPECT_TRUE(found->peaks[i] == expected.peaks[i] || (found->peaks[i] != found->peaks[i])) << text;
  }
  for (const char* text : {"", "{\"step\": 1", "[1]", "{\"step\": 1.5}", "{\"step\": \"1\"}", "{\"step\": null}"})
    EXPECT_FALSE(read_log_point(text)) << text;
}

TEST(LogSample, AHundredThousandLinesNeedNoMoreMemoryThanAFew) {
  const TemporaryFolder folder;
  MetricsFile file(path_join(folder.path(), "metrics.jsonl"), -1);
  append_steps(file, 0, 20'000);
  const std::size_t before = bytes_in_use(), rendered_before = rendered_bytes(file);
  append_steps(file, 20'000, 100'000);
  const std::size_t after = bytes_in_use(), rendered_after = rendered_bytes(file);
  EXPECT_LT(after, before + (4u << 20)) << "88,000 more lines";
  EXPECT_LT(rendered_after, 2 * rendered_before) << "the cost of a report grows with the number of lines";
  EXPECT_LE(file.lines().size(), 256u * (6 + 4));

  const std::vector<Value> lines = values(file.lines());
  EXPECT_EQ(lines.front().at("step").as_int(), 0);
  EXPECT_EQ(lines.back().at("step").as_int(), 99'999);
  const auto has = [&](const char* name, double number) {
    return std::any_of(lines.begin(), lines.end(), [&](const Value& line) {
      const Value* value = line.find(name);
      return value != nullptr && value->as_real() == number;
    });
  };
  EXPECT_TRUE(has("loss", 99)) << "a spike of one line is missing";
  EXPECT_TRUE(has("eval_loss", 77)) << "a spike of one evaluation is missing";
  for (std::size_t i = 1; i < lines.size(); ++i)
    ASSERT_LE(lines[i - 1].at("step").as_int(), lines[i].at("step").as_int());
}

TEST(LogSample, AfterARestartItIsWhatItWasAndTheFileIsReadInAStream) {
  const TemporaryFolder folder;
  const std::string path = path_join(folder.path(), "metrics.jsonl");
  const auto texts = [](const MetricsFile& file) {
    std::vector<std::string> all;
    for (const auto& line : file.lines()) all.push_back(*line);
    return all;
  };
  std::vector<std::string> before;
  {
    MetricsFile file(path, -1);
    append_steps(file, 0, 20'000);
    before = texts(file);
  }
  const std::size_t in_use = bytes_in_use(), size = read_file(path).size();
  MetricsFile file(path, 19'999);
  EXPECT_EQ(texts(file), before);
  EXPECT_EQ(read_file(path).size(), size);
  EXPECT_LT(bytes_in_use(), in_use + (4u << 20));
}

/// Lines assembled directly, because serializing takes longer than reading.
void write_log(const std::string& path, std::size_t lines) {
  const std::string rest = dump_json(to_json(logged_at(0)), -1, 9).substr(std::string("{\"step\":0").size());
  std::ofstream out(path);
  for (std::size_t i = 0; i < lines; ++i) out << "{\"step\":" << i << rest << '\n';
}

TEST(LogSample, ReadingALogTakesTimeInProportionToIt) {
  const TemporaryFolder folder;
  const std::string small = path_join(folder.path(), "small"), large = path_join(folder.path(), "large");
  write_log(small, 10'000);
  write_log(large, 80'000);
  const auto read = [](const std::string& path) { MetricsFile(path, std::int64_t{1} << 40); };
  EXPECT_LE(testing::growth([&] { read(small); }, [&] { read(large); }), testing::linear_growth);
}

}  // namespace
}  // namespace tessera::train
