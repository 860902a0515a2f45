#pragma once
/// \file
/// A step of a small Llama: what lies between operations. `tessera plan calibrate` times operations one by one; a step
/// takes longer than their sum, by what autograd, allocators and colder caches take between them. How much depends on
/// the machine and on how many processes share it, so that is measured, too: forward and backward of this model, over
/// what its operations take by themselves (Speeds::between).

#include <tessera/plan/costs.h>
#include <tessera/plan/plan.h>

#include <cstdint>

namespace tessera::plan {

/// Its rows and their tokens.
inline constexpr std::int64_t reference_rows = 2, reference_tokens = 256;
/// Its config.json.
Value reference_config();
/// Seconds of forward and backward of those rows by one process that has `cluster.device`, as plans have them: the sum
/// of operations, times Speeds::between_* where that is known.
double reference_seconds(const Cluster& cluster, Precision precision);

}  // namespace tessera::plan
