/// \file The cost of a log line for the step before it: the processor time that the thread needs to write the line and
/// to keep it for the report and log_history, for each of many lines. One slow line means one slow step.
///
///   log_bench [LINES]                  {"lines", "median_us", "p999_us", "longest_us", "over_1_ms", "report_us"}

#include <tessera/base/file.h>
#include <tessera/train/reporting/log_sample.h>
#include <tessera/train/reporting/metrics.h>

#include <time.h>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

using namespace tessera;

namespace {

double microseconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e6 * static_cast<double>(now.tv_sec) + 1e-3 * static_cast<double>(now.tv_nsec);
}

train::StepMetrics logged_at(std::int64_t step) {
  train::StepMetrics metrics;
  metrics.step = step;
  metrics.loss = 3 + std::sin(0.37 * static_cast<double>(step));
  metrics.grad_norm = 1 + std::cos(0.11 * static_cast<double>(step));
  metrics.step_time_ms = 1 + 0.1 * std::sin(0.05 * static_cast<double>(step));
  metrics.memory_by_rank = {std::int64_t{1} << 30};
  return metrics;
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t lines = argc > 1 ? std::atoll(argv[1]) : 100'000;
  const TemporaryFolder folder;
  train::MetricsFile file(path_join(folder.path(), "metrics.jsonl"), -1);
  train::LogSample<Value> history(1024);
  std::vector<double> times, reports;
  for (std::int64_t step = 1; step <= lines; ++step) {
    const train::StepMetrics metrics = logged_at(step);
    const double begin = microseconds();
    Value entry = train::hf_log_entry(metrics);
    const train::LogPoint point = train::log_point(entry);
    history.add(point, std::move(entry));
    file.append(train::to_json(metrics));
    times.push_back(microseconds() - begin);
    if (step % std::max<std::int64_t>(1, lines / 10) != 0) continue;
    const double report = microseconds();
    const auto shown = file.lines();
    reports.push_back(microseconds() - report);
  }
  const auto over = std::count_if(times.begin(), times.end(), [](double us) { return us > 1000; });
  std::sort(times.begin(), times.end());
  std::printf(
      "{\"lines\": %lld, \"median_us\": %.1f, \"p999_us\": %.1f, \"longest_us\": %.1f, \"over_1_ms\": %lld, "
      "\"report_us\": %.1f}\n",
      static_cast<long long>(lines), times[times.size() / 2], times[times.size() - 1 - times.size() / 1000],
      times.back(), static_cast<long long>(over), *std::max_element(reports.begin(), reports.end()));
}
