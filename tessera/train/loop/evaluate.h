#pragma once
/// \file
/// Evaluation: the mean loss over the scored tokens of a dataset, distributed over the ranks.

#include <tessera/comm/group.h>
#include <tessera/data/dataset.h>
#include <tessera/models/causal_lm.h>
#include <tessera/train/features/objective.h>
#include <tessera/train/reporting/metrics.h>

#include <optional>

namespace tessera::train {

struct EvaluationForm {
  std::int64_t batch_size = 1;                ///< rows per batch; the last batch may be smaller
  std::optional<at::ScalarType> narrow = {};  ///< forward under autocast (nn/autocast.h), as in training
  /// Skips batches whose loss is not finite, as long as another one is finite (transformers' logging_nan_inf_filter).
  bool nan_filter = false;
  std::int64_t at_once = 1;  ///< batches in flight in a pipeline
};

/// Evaluates every block once: rank r of R takes the batches r, R + r, ... Their sums are added in fp64 in batch order,
/// so the bits do not depend on the number of ranks (one thread each). Restores the model's training mode. With
/// `how.pipeline`, uses the pipeline's losses instead of the model's own. Collective. Fills loss, tokens, rows,
/// batches, seconds and classes; nullopt if `how` interrupted it.
std::optional<EvalMetrics> evaluate(models::LanguageModel& model, const data::Dataset& dataset,
                                    const comm::Group& group, const EvaluationForm& form, const Evaluating& how);

}  // namespace tessera::train
