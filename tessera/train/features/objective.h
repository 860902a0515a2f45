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
  LossesOf pipeline = {};  ///< runs batches through the pipeline's stages; empty: not a pipeline
  /// Called before each of a rank's `batches` batches, of which `done` are finished (batches missing at the end are
  /// counted as well). Returns whether to continue. Collective; the same answer on all ranks.
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
  /// Same for dummy rows, whose results are ignored: a rank without rows takes part in the other ranks' collectives.
  virtual data::Batch arranged_idle(data::Batch rows) const = 0;
  /// Returns the sum of the losses of the rows times `scale`, a scalar with gradients. `batch` is on the model's
  /// device.
  virtual at::Tensor loss(const data::Batch& batch, double scale) = 0;
  /// Same for mock rows, to see whether they fit into memory. Statistics are not updated.
  virtual at::Tensor trial_loss(const data::Batch& batch) = 0;
  /// Evaluates all validation rows once; nullopt if it was interrupted (Evaluating::goes_on). Collective.
  virtual std::optional<EvalMetrics> evaluate(const Evaluating& how) = 0;
};

}  // namespace tessera::train
