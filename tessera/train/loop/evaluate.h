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

/// Every block once, in batches of `batch_size` (the last may be smaller): rank r of R takes the batches r, R + r, ...
/// Their sums are added in fp64 in the order of the batches, so the bits do not depend on the number of ranks (one
/// thread each). The model is left in training mode as it was. `narrow`: forward under autocast (nn/autocast.h), as in
/// training. `together`: a forward pass is collective (parameters are divided over ranks), so every rank does as many.
/// `nan_filter`: batches whose loss is not finite are left out, as long as there is another one (transformers'
/// logging_nan_inf_filter). `pipeline`: instead of the model's own loss, the losses of up to `at_once` batches,
/// which go through a pipeline one behind the other. Collective. Fills loss, tokens, rows, batches, seconds and
/// classes.
EvalMetrics evaluate(models::LanguageModel& model, const data::Dataset& dataset, std::int64_t batch_size,
                     const comm::Group& group, std::optional<at::ScalarType> narrow = {}, bool together = false,
                     bool nan_filter = false, const LossesOf& pipeline = {}, std::int64_t at_once = 1);

}  // namespace tessera::train
