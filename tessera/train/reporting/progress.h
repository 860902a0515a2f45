#pragma once
/// \file
/// Progress display for people. On a terminal: one line that rewrites itself, as wide as the terminal, with permanent
/// lines (evaluations, checkpoints) above it. Otherwise: one plain line per logged step.

#include <tessera/train/reporting/metrics.h>

#include <cstdint>
#include <string>

namespace tessera::train {

struct ProgressState {
  std::int64_t step = 0, total_steps = 0;
  double loss = 0;  ///< nan: not known yet
  double learning_rate = 0;
  double tokens_per_second = 0;
  std::int64_t memory_bytes = 0;
  double seconds_left = 0;
};

/// The rewriting line: "[=====>    ] 120/400  loss 5.1234  lr 3.00e-04  2.1 k tok/s  312 MiB  0:01:52 left". Parts that
/// do not fit into `columns` are dropped, the least important first; the result is never wider.
std::string progress_line(const ProgressState& state, int columns);
/// Same during an evaluation: "[=====>    ]  evaluation 120/400".
std::string evaluation_line(std::int64_t done, std::int64_t batches, int columns);
/// "step 120/400 (30%)  epoch 0.61  loss 5.1234  grad_norm 0.812  lr 3.00e-04  2.1 k tok/s  312 MiB  0:01:52 left".
std::string plain_line(const StepMetrics& metrics, std::int64_t total_steps, double seconds_left);

/// Writes to stderr, and records to stdout (our launcher passes on both from rank 0). Only rank 0 creates one that is
/// not `quiet`.
class Progress {
 public:
  enum class Mode { quiet, plain, terminal };

  /// disabled (--disable_tqdm): the rewriting line is never shown.
  Progress(bool quiet, bool disabled);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  Mode mode() const { return mode_; }
  /// Reports a finished step. Redraws at most ten times a second.
  void step(const ProgressState& state);
  /// Reports that an evaluation has finished `done` of its batches. Redraws at most ten times a second; without a
  /// terminal, one plain line a minute.
  void evaluating(std::int64_t done, std::int64_t batches);
  /// Reports that the evaluation is over: the rewriting line shows training again, if it did before.
  void evaluated();
  /// Sets the loss that the rewriting line shows.
  void set_loss(double loss);
  /// Writes a permanent line for people to stderr.
  void note(const std::string& text);
  /// Writes a permanent line that scripts can read as well to stdout.
  void record(const std::string& text);
  /// Ends the rewriting line.
  void close();

 private:
  void draw(std::string line);
  std::string training_line() const;
  void lasting(int file, const std::string& text);

  Mode mode_ = Mode::quiet;
  bool drawn_ = false;
  std::int64_t drawn_ns_ = 0, told_ns_ = 0;
  ProgressState state_;
  std::string line_ = {};  ///< the rewriting line
};

}  // namespace tessera::train
