#pragma once
/// \file
/// Where a run's numbers go: log lines and the progress line, metrics.jsonl, TensorBoard, Prometheus, and
/// trainer_state.json's history.

#include <tessera/comm/world.h>
#include <tessera/format/tensorboard.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/metrics.h>
#include <tessera/train/reporting/metrics_server.h>
#include <tessera/train/reporting/output.h>
#include <tessera/train/reporting/progress.h>
#include <tessera/train/reporting/prometheus.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::train {

/// Every rank has one; that of the others than rank 0 writes nothing. Not thread-safe.
class Journal {
 public:
  /// Throws InputError when --metrics_port cannot be listened on.
  Journal(const Setup& setup, const comm::World& world);

  /// Rank 0, once, when it is time to write: from now on numbers go to metrics.jsonl of `output` and, with
  /// --report_to tensorboard, to an event file in --logging_dir, which begins with `configuration`. `output` must
  /// outlive this object. Throws InputError when --logging_dir cannot be made or --metrics_file not be written.
  void open(OutputFolder& output, const Value& configuration);

  void note(const std::string& text) { progress_.note(text); }
  /// A step is done; `state()` is only asked for when a person can see it.
  template <class State>
  void step(State&& state) {
    if (progress_.mode() == Progress::Mode::terminal) progress_.step(state());
  }
  void logged(const StepMetrics& metrics, std::int64_t total_steps, double seconds_left);
  void evaluated(const EvalMetrics& metrics);
  void sampled(std::int64_t step, const std::string& prompt, const std::string& text);
  void ended(const RunTotals& totals);
  /// Ends the progress line.
  void close() { progress_.close(); }

  /// As Hugging Face's trainer_state.json keeps them, those before a resume included.
  const std::vector<Value>& log_history() const { return log_history_; }

 private:
  /// Brings --metrics_file and --metrics_port up to date.
  void expose();
  /// HF's names after a prefix: train/loss.
  void write_events(std::int64_t step, const std::string& prefix,
                    const std::vector<std::pair<std::string, double>>& scalars);

  const OutputConfig& config_;
  std::int64_t resumed_step_;
  Value model_config_;
  Progress progress_;
  OutputFolder* output_ = nullptr;
  Exposition exposition_;
  bool exposition_failed_ = false;  ///< which was said
  std::optional<MetricsServer> server_;
  std::optional<format::EventFile> events_;
  std::vector<Value> log_history_;
};

}  // namespace tessera::train
