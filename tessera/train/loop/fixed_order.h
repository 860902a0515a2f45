#pragma once
/// \file
/// --deterministic_reduce: a step is V = --logical_shards micro-batches, regardless of the number of processes; their
/// gradients and losses are added in order, so weights, norms and losses have the same bits for every number of
/// processes that divides V (docs/strategies.md). With W processes, rank r computes micro-batches r, W + r, 2 W + r,
/// ... A pipeline counts as one process: each of its stages sums in that order.

#include <tessera/base/value.h>

#include <cstdint>

namespace tessera {
struct RunConfig;
}

namespace tessera::train {

/// The run as W processes (copies of the model) execute it: gradient_accumulation_steps = V / W, threads_per_process =
/// 1, logical_shards = V (W x gradient_accumulation_steps if not set). Unchanged without --deterministic_reduce. Throws
/// one InputError with all contradictions: V not a multiple of W, accumulation or threads that were set to another
/// value, shards without --deterministic_reduce. `resolved` records which settings were given (a setting's "origin");
/// empty: all settings that differ from their defaults.
RunConfig with_fixed_order(RunConfig config, const Value& resolved, std::int64_t copies);

}  // namespace tessera::train
