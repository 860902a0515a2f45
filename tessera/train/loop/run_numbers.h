#pragma once
/// \file
/// A run's measurements: between two logs, over the whole run, and of the machine.

#include <tessera/comm/world.h>
#include <tessera/train/features/log_sums.h>
#include <tessera/train/loop/parallelize.h>
#include <tessera/train/loop/setup.h>
#include <tessera/train/reporting/advice.h>
#include <tessera/train/reporting/report.h>
#include <tessera/train/reporting/summary.h>
#include <tessera/train/reporting/window.h>

#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

namespace tessera::train {

inline constexpr double not_known = std::numeric_limits<double>::quiet_NaN();

/// Whether parts of the model are on other ranks, so that forward passes and saving are collective.
bool is_divided(const Setup& setup, ParallelModel& model);

/// Every rank has one. Not thread-safe.
class RunNumbers {
 public:
  /// All arguments outlive this object. `process_bytes`: resident before anything was created.
  RunNumbers(const Setup& setup, comm::World& world, ParallelModel& model, std::int64_t process_bytes);

  Window& window() { return window_; }
  RunTotals& totals() { return totals_; }
  const StepMetrics& last_log() const { return last_log_; }
  const Sample& last_sample() const { return last_sample_; }
  std::int64_t tokens() const { return tokens_; }  ///< without padding, since the start of this process

  /// Collects each rank's predicted memory: ranks may hold different stages of the model. `tokens`: number of tokens in
  /// a micro-batch. Collective.
  void predict_memory(std::int64_t tokens);
  /// Measures the baselines: the processors' peak, the loss of guessing by frequency, a sample from a pretrained model
  /// before the first step. `tells`: this rank logs. Collective.
  void measure_yardsticks(bool tells);
  /// Call when the first step starts.
  void start();
  void end_step(std::int64_t step, double seconds, double cpu_seconds);
  /// The current loss, as far as this rank knows it.
  double rough_loss() const;
  double smoothed_step_seconds() const { return step_seconds_; }
  double seconds_left(std::int64_t step) const;

  /// Ends the window between two logs. `phases`: the seconds of this window. Collective.
  StepMetrics close_window(const PhaseSeconds& phases, const std::vector<double>& sums);
  /// Records the complete metrics of a window of `steps` steps.
  void logged(const StepMetrics& metrics, std::int64_t steps);
  /// Model FLOP/s divided by the measured peak of all ranks; 0: unknown.
  double flops_utilization(double tokens_per_second) const;
  double flops_per_token() const;
  /// Counted as --include_num_input_tokens_seen requests; -1: not requested.
  std::int64_t input_tokens_seen() const;
  std::int64_t tokens_since_step_0() const;

  /// Stores the drawing of a step for the report.
  void draw(std::string svg) { drawing_ = std::move(svg); }
  /// Ends the run after `step` steps.
  void end(std::int64_t step, std::int64_t skipped_steps, const std::string& reason);
  /// Samples text from the finished model. Collective if the model is divided.
  void sample(bool tells);
  /// Returns one line about the limiting resource of the run.
  std::string advice(std::int64_t step) const;
  void write_to(Report& report, std::int64_t step) const;
  /// Rank 0's memory compared with the prediction; empty: nothing was logged.
  std::string compared_memory() const;
  std::vector<std::string> describe_end(const std::string& report_path) const;

 private:
  Utilization utilization(std::int64_t step) const;

  const Setup& setup_;
  comm::World& world_;
  ParallelModel& model_;
  const std::int64_t process_bytes_;
  Window window_;
  std::vector<Value> predicted_memory_;  // by rank
  double peak_flops_ = 0;                // peak of all ranks together
  // Since the start of this process.
  std::int64_t tokens_ = 0, inputs_ = 0;  // without padding, with padding
  double train_seconds_ = 0;
  double step_seconds_ = 0;  // smoothed, to estimate the remaining time
  double loss_sum_ = 0, cpu_seconds_ = 0;
  PhaseSeconds phase_sums_ = {};
  StepMetrics last_log_;
  RunTotals totals_;
  std::int64_t started_ns_ = 0;
  std::string drawing_;  // whether the run has ended
  Sample first_sample_, last_sample_;
};

}  // namespace tessera::train
