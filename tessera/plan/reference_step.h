#pragma once
/// \file
/// A step of a Llama, as in a real run, that measures the overhead between operations. `tessera plan calibrate` times
/// operations one by one; a step takes longer than their sum because of autograd, allocators, the sharding engine and
/// colder caches. The overhead depends on the machine and on the number of processes that share it, so it is measured:
/// the time of forward, backward, reduction and update of this model in data-parallel processes, divided by the
/// prediction for its operations alone (Speeds::between). The model is large enough that the weights, gradients and
/// states of all processes do not stay in caches between steps, as with any model worth planning for.

#include <tessera/plan/costs.h>
#include <tessera/plan/plan.h>

#include <cstdint>

namespace tessera::plan {

/// Rows per process, and tokens per row.
inline constexpr std::int64_t reference_rows = 4, reference_tokens = 256;
/// Its config.json.
Value reference_config();

/// Seconds of that step as the sum of its operations.
struct ReferenceSeconds {
  double computing = 0;  ///< forward and backward
  double rest = 0;       ///< exposed communication, the update, waiting for the slowest
};
/// The predicted seconds for `processes` data-parallel processes, each on one `cluster.device`.
ReferenceSeconds reference_seconds(const Cluster& cluster, Precision precision, int processes);

}  // namespace tessera::plan
