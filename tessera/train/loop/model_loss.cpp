#include <tessera/train/loop/model_loss.h>

#include <ATen/ATen.h>

#include <cstdint>

#include <tessera/train/core/precision.h>
#include <tessera/train/loop/evaluate.h>

namespace tessera::train {

data::Batch ModelLoss::arranged_idle(data::Batch rows) const {
  rows.labels.fill_(data::not_scored);
  return rows;
}

std::optional<EvalMetrics> ModelLoss::evaluate(const Evaluating& how) {
  return train::evaluate(*setup_.model, *setup_.datasets.validation, setup_.groups.data,
                         {.batch_size = setup_.config.optimization.per_device_eval_batch_size,
                          .narrow = evaluation_precision(setup_.config),
                          .nan_filter = setup_.config.output.logging_nan_inf_filter,
                          .at_once = setup_.xla ? setup_.devices() : std::int64_t{4} * setup_.groups.pipeline_ranks()},
                         how);
}

}  // namespace tessera::train
