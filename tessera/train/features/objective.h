#pragma once
/// \file
/// What a run minimizes: the model's own loss (loop/model_loss.h), or a feature's.

#include <tessera/data/dataset.h>
#include <tessera/train/reporting/metrics.h>

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::train {

/// The losses of several batches, each times its scale, without gradients.
using LossesOf =
    std::function<std::vector<double>(const std::vector<data::Batch>& batches, const std::vector<double>& scales)>;

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
  /// All rows to validate on, once. `together`: a forward pass is collective. `pipeline`: how batches go through its
  /// stages; empty: there is none. Collective.
  virtual EvalMetrics evaluate(bool together, const LossesOf& pipeline) = 0;
};

}  // namespace tessera::train
