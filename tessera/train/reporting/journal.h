#pragma once
/// \file
/// Writes a run's metrics: log lines and the progress line, metrics.jsonl, TensorBoard, CSV, Prometheus, and
/// trainer_state.json's history.

#include <tessera/comm/world.h>
#include <tessera/format/tensorboard.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/csv_log.h>
#include <tessera/train/reporting/latest_job.h>
#include <tessera/train/reporting/log_sample.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/metrics_server.h>
#include <tessera/train/reporting/output.h>
#include <tessera/train/reporting/progress.h>
#include <tessera/train/reporting/prometheus.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

/// Every rank has one; only rank 0's writes anything. Not thread-safe.
class Journal {
 public:
  /// Throws InputError if it cannot listen on --metrics_port.
  Journal(const Setup& setup, const comm::World& world);

  /// Called once on rank 0 when writing may begin. From then on metrics go to metrics.jsonl of `output` and to the
  /// targets of --report_to: an event file in --logging_dir, which starts with `configuration`, and metrics.csv.
  /// `output` must outlive this object. Throws InputError if one of them cannot be created.
  void open(OutputFolder& output, const Value& configuration);

  void note(const std::string& text) { progress_.note(text); }
  /// Reports a finished step; `state()` is called only if the result is shown somewhere.
  template <class State>
  void step(State&& state) {
    if (progress_.mode() == Progress::Mode::terminal) progress_.step(state());
  }
  void logged(const StepMetrics& metrics, std::int64_t total_steps, double seconds_left);
  /// Reports that an evaluation has finished `done` of its batches.
  void evaluating(std::int64_t done, std::int64_t batches) { progress_.evaluating(done, batches); }
  /// Reports the end of an evaluation, complete or interrupted.
  void evaluation_ends() { progress_.evaluated(); }
  void evaluated(const EvalMetrics& metrics);
  void sampled(std::int64_t step, const std::string& prompt, const std::string& text);
  void ended(const RunTotals& totals);
  /// Ends the progress line and writes --metrics_file for the last time.
  void close();

  /// Entries in the form of Hugging Face's trainer_state.json, including those before a resume. More than 1,024 entries
  /// are reduced to a sample (log_sample.h), which depends only on the lines and not on where the run was resumed.
  std::vector<Value> log_history() const { return log_history_.lines(); }

 private:
  void remember(Value entry);
  /// Updates --metrics_file and --metrics_port.
  void expose();
  /// A number with its name in TensorBoard's grouping and in transformers' logs: "eval/loss" and "eval_loss".
  struct Number {
    std::string tag, name;
    double value = 0;
  };
  /// Training metrics keep their name: "train/loss" and "loss".
  static Number number(const std::string& group, const std::string& name, double value);
  void open_csv(OutputFolder& output);
  void open_events(OutputFolder& output, const Value& configuration);
  void track(std::int64_t step, const std::vector<Number>& numbers);

  const OutputConfig& config_;
  std::int64_t resumed_step_;
  bool resumed_;
  Value model_config_;
  Progress progress_;
  OutputFolder* output_ = nullptr;
  Exposition exposition_;
  std::optional<MetricsServer> server_;
  std::optional<format::EventFile> events_;
  std::optional<CsvLog> csv_;
  LogSample<Value> log_history_{1024};
  bool exposition_failed_ = false;            ///< whether a failure was reported; used by the thread of expositions_
  LatestJob expositions_{"tessera-numbers"};  ///< writes --metrics_file; declared last so that it ends first
};

}  // namespace tessera::train
