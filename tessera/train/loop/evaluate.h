#pragma once
/// \file
/// Evaluation: the mean loss over the scored tokens of a data set, spread over the ranks.

#include <tessera/comm/group.h>
#include <tessera/data/dataset.h>
#include <tessera/models/causal_lm.h>
#include <tessera/train/features/objective.h>
#include <tessera/train/reporting/metrics.h>

#include <optional>

namespace tessera::train {

struct EvaluationForm {
  std::int64_t batch_size = 1;                ///< rows; the last batch may be smaller
  std::optional<at::ScalarType> narrow = {};  ///< forward under autocast (nn/autocast.h), as in training
  /// Batches whose loss is not finite are left out, as long as there is another one (transformers'
  /// logging_nan_inf_filter).
  bool nan_filter = false;
  std::int64_t at_once = 1;  ///< batches that go through a pipeline one behind the other
};

/// Every block once: rank r of R takes the batches r, R + r, ... Their sums are added in fp64 in the order of the
/// batches, so the bits do not depend on the number of ranks (one thread each). The model is left in training mode as
/// it was. With `how.pipeline` the losses are those instead of the model's own. Collective. Fills loss, tokens, rows,
/// batches, seconds and classes; nothing where `how` gave it up.
std::optional<EvalMetrics> evaluate(models::LanguageModel& model, const data::Dataset& dataset,
                                    const comm::Group& group, const EvaluationForm& form, const Evaluating& how);

}  // namespace tessera::train
