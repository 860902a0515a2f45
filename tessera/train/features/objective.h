#pragma once
/// \file
/// The objective of a run: the model's own loss (loop/model_loss.h) or a feature's.

#include <tessera/data/dataset.h>
#include <tessera/train/reporting/metrics.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

namespace tessera::train {

/// Returns the losses of several batches, each times its scale, without gradients.
using LossesOf =
    std::function<std::vector<double>(const std::vector<data::Batch>& batches, const std::vector<double>& scales)>;

/// How an evaluation processes its batches.
struct Evaluating {
  bool together = false;   ///< forward passes are collective: every rank runs the same number
  LossesOf pipeline = {};  ///< runs batches through the pipeline's stages; empty: no pipeline
  /// Called before each of a rank's `batches` batches, of which `done` are finished (missing ones at the end count
  /// too). Returns whether to continue. Collective; the same answer on all ranks.
  std::function<bool(std::int64_t done, std::int64_t batches)> goes_on = [](std::int64_t, std::int64_t) {
    return true;
  };
};

class Objective {
 public:
  virtual ~Objective() = default;
  /// Number of model rows per row of data.
  virtual std::int64_t rows_of_sample() const { return 1; }
  /// Returns the rows arranged as loss() expects them.
  virtual data::Batch arranged(data::Batch rows) const { return rows; }
  /// The same for rows that do not count: a rank without rows still joins the other ranks' collectives.
  virtual data::Batch arranged_idle(data::Batch rows) const = 0;
  /// Returns the sum of the losses of the rows times `scale`, a scalar with gradients. `batch` is on the model's
  /// device.
  virtual at::Tensor loss(const data::Batch& batch, double scale) = 0;
  /// The same for mock rows, to test whether they fit into memory. Not counted in the metrics.
  virtual at::Tensor trial_loss(const data::Batch& batch) = 0;
  /// Evaluates all validation rows once; nullopt if it was interrupted (Evaluating::goes_on). Collective.
  virtual std::optional<EvalMetrics> evaluate(const Evaluating& how) = 0;
};

}  // namespace tessera::train
