#pragma once
/// \file
/// What a run minimizes: the model's own loss (loop/model_loss.h), or a feature's.

#include <tessera/data/dataset.h>
#include <tessera/train/reporting/metrics.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::train {

/// The losses of several batches, each times its scale, without gradients.
using LossesOf =
    std::function<std::vector<double>(const std::vector<data::Batch>& batches, const std::vector<double>& scales)>;

/// How an evaluation goes through its batches.
struct Evaluating {
  bool together = false;   ///< a forward pass is collective: every rank does as many
  LossesOf pipeline = {};  ///< how batches go through its stages; empty: there is none
  /// Asked before each of the `batches` of a rank, `done` of which it has passed (those that it lacks at the end, too):
  /// whether to go on. Collective, and the answer is the same on all ranks.
  std::function<bool(std::int64_t done, std::int64_t batches)> goes_on = [](std::int64_t, std::int64_t) {
    return true;
  };
};

class Objective {
 public:
  virtual ~Objective() = default;
  /// Rows of the model that a row of the data makes.
  virtual std::int64_t rows_of_sample() const { return 1; }
  /// Rows as loss() wants them.
  virtual data::Batch arranged(data::Batch rows) const { return rows; }
  /// The same where they count for nothing: a rank without rows computes along, for the others' sake.
  virtual data::Batch arranged_idle(data::Batch rows) const = 0;
  /// The sum over the rows, times `scale`: a scalar with gradients. `batch` is on the model's device.
  virtual at::Tensor loss(const data::Batch& batch, double scale) = 0;
  /// The same of made-up rows, to see whether they fit into memory. Nothing is counted.
  virtual at::Tensor trial_loss(const data::Batch& batch) = 0;
  /// All rows to validate on, once; nothing where it was given up (Evaluating::goes_on). Collective.
  virtual std::optional<EvalMetrics> evaluate(const Evaluating& how) = 0;
};

}  // namespace tessera::train
