#pragma once
/// \file
/// Evaluation: the mean loss over the scored tokens of a data set, spread over the ranks.

#include <tessera/comm/group.h>
#include <tessera/data/dataset.h>
#include <tessera/models/causal_lm.h>
#include <tessera/train/metrics.h>

namespace tessera::train {

/// Every block once: rank r of R takes the blocks [n r / R, n (r + 1) / R) in batches of at most `batch_size`. Sums are
/// formed in fp64 and added in rank order, so the result does not depend on the number of ranks beyond rounding. The
/// model is left in training mode as it was. `bf16`: forward under autocast (nn/autocast.h), as in training.
/// Collective. Fills loss, tokens, rows, batches and seconds.
EvalMetrics evaluate(models::CausalLm& model, const data::Dataset& dataset, std::int64_t batch_size,
                     const comm::Group& group, bool bf16 = false);

/// `batch` with its tensors on a device.
data::Batch to_device(data::Batch batch, c10::Device device);

}  // namespace tessera::train
