#pragma once
/// \file
/// The mesh of a run, derived from its settings in one place. pp, tp and cp are settings; the remaining ranks are
/// data-parallel, in shard groups and replicas according to the strategy. A shard group is within one pipeline stage.
/// Rules that depend on the model: layout/mesh_rules.h.

#include <tessera/config/sections/parallel_config.h>
#include <tessera/config/sections/words.h>
#include <tessera/layout/mesh.h>

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {
struct RunConfig;
}

namespace tessera::config {

/// Ranks that process one copy of the data: pp_size x tp_size x cp_size.
inline std::int64_t ranks_per_sample(const ParallelConfig& parallel) {
  return parallel.pp_size * parallel.tp_size * parallel.cp_size;
}

/// Number of ranks of `processes` with different data: processes / (pp_size x tp_size x cp_size), at least 1. Batch
/// sizes are multiplied by it. mesh_problem() reports sizes that do not divide `processes`.
std::int64_t data_parallel_ranks(const ParallelConfig& parallel, std::int64_t processes);

/// Returns a setting as the user spelled it, for messages.
using SaySetting = std::function<std::string(const char* name)>;

/// Checks the settings for `world_size` ranks. Returns the rule, the numbers and choices that fit; empty: no problem.
/// ranks_per_host 0: unknown, so hybrid strategies are not checked. `say` empty: settings by name.
std::string mesh_problem(const RunConfig& config, int world_size, int ranks_per_host, const SaySetting& say = {});

/// The axes of `world_size` ranks on hosts of `ranks_per_host` (>= 1) consecutive ranks:
///   ddp                     dp_shard = 1: nothing is sharded, not even over cp
///   zero*, full_shard, ...  dp_shard = dp, or shard_group_size / cp: it counts the ranks of dp_shard x cp
///   hybrid_shard*           dp_shard x cp = shard_group_size, or a host's ranks of one stage / tp
/// where dp = world_size / (pp x tp x cp), and dp_replicate = dp / dp_shard. Throws InputError with mesh_problem().
layout::Mesh run_mesh(const RunConfig& config, int world_size, int ranks_per_host);

/// Checks an optimizer together with tp_size: updates that mix elements of whole matrices need more than this rank's
/// part. Empty: no problem. `said`: the user's spelling.
std::string problem_of_optimizer(OptimizerKind optim, const ParallelConfig& parallel,
                                 const std::string& said = "optim");

}  // namespace tessera::config
