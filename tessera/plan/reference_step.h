#pragma once
/// \file
/// A step of a Llama as a run makes it: what lies between operations. `tessera plan calibrate` times operations one by
/// one; a step takes longer than their sum, by what autograd, allocators, the sharding engine and colder caches take
/// between them. How much depends on the machine and on how many processes share it, so that is measured, too: forward,
/// backward, reduction and update of this model by data-parallel processes, over what is predicted of its operations
/// alone (Speeds::between). The model is large enough for its weights, gradients and states, of all processes, not to
/// stay in caches from one step to the next, as those of models that are worth planning for do not.

#include <tessera/plan/costs.h>
#include <tessera/plan/plan.h>

#include <cstdint>

namespace tessera::plan {

/// Rows of a process, and their tokens.
inline constexpr std::int64_t reference_rows = 4, reference_tokens = 256;
/// Its config.json.
Value reference_config();

/// Seconds of that step, as the sum of operations.
struct ReferenceSeconds {
  double computing = 0;  ///< forward and backward,
  double rest = 0;       ///< exchanges that they do not hide, the update, waiting for the slowest
};
/// By so many data-parallel processes that have `cluster.device` each.
ReferenceSeconds reference_seconds(const Cluster& cluster, Precision precision, int processes);

}  // namespace tessera::plan
