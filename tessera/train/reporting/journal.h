#pragma once
/// \file
/// Where a run's numbers go: log lines and the progress line, metrics.jsonl, TensorBoard, CSV, Prometheus, and
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

/// Every rank has one; that of the others than rank 0 writes nothing. Not thread-safe.
class Journal {
 public:
  /// Throws InputError when --metrics_port cannot be listened on.
  Journal(const Setup& setup, const comm::World& world);

  /// Rank 0, once, when it is time to write: from now on numbers go to metrics.jsonl of `output` and to what
  /// --report_to names: an event file in --logging_dir, which begins with `configuration`, and metrics.csv. `output`
  /// must outlive this object. Throws InputError when one of them cannot be made.
  void open(OutputFolder& output, const Value& configuration);

  void note(const std::string& text) { progress_.note(text); }
  /// A step is done; `state()` is only asked for when a person can see it.
  template <class State>
  void step(State&& state) {
    if (progress_.mode() == Progress::Mode::terminal) progress_.step(state());
  }
  void logged(const StepMetrics& metrics, std::int64_t total_steps, double seconds_left);
  /// An evaluation has passed `done` of its batches.
  void evaluating(std::int64_t done, std::int64_t batches) { progress_.evaluating(done, batches); }
  /// It is over, whether it was finished or given up.
  void evaluation_ends() { progress_.evaluated(); }
  void evaluated(const EvalMetrics& metrics);
  void sampled(std::int64_t step, const std::string& prompt, const std::string& text);
  void ended(const RunTotals& totals);
  /// Ends the progress line. What --metrics_file shows is the end.
  void close();

  /// As Hugging Face's trainer_state.json keeps them, those before a resume included; of more than 1,024 a sample
  /// (log_sample.h), which depends on the lines alone and not on where the run was resumed.
  std::vector<Value> log_history() const { return log_history_.lines(); }

 private:
  void remember(Value entry);
  /// Brings --metrics_file and --metrics_port up to date.
  void expose();
  /// A number as TensorBoard groups it and as transformers' logs name it: "eval/loss" and "eval_loss".
  struct Number {
    std::string tag, name;
    double value = 0;
  };
  /// Numbers of training keep their name: "train/loss" and "loss".
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
  bool exposition_failed_ = false;            ///< which was said; the thread's of expositions_
  LatestJob expositions_{"tessera-numbers"};  ///< writes --metrics_file; last: it ends first
};

}  // namespace tessera::train
