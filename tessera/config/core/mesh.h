#pragma once
/// \file
/// The mesh of a run: the one place where it follows from settings. pp, tp and cp are settings; the ranks that are left
/// are data-parallel, in shard groups and copies as the strategy says; a shard group is inside a stage of the pipeline.
/// Rules that need the model: layout/mesh_rules.h.

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

/// Ranks of one copy of the data: pp_size x tp_size x cp_size.
inline std::int64_t ranks_per_sample(const ParallelConfig& parallel) {
  return parallel.pp_size * parallel.tp_size * parallel.cp_size;
}

/// How many ranks of `processes` get different data: processes / (pp_size x tp_size x cp_size), at least 1. Batch sizes
/// count these. mesh_problem() reports a number that does not divide.
std::int64_t data_parallel_ranks(const ParallelConfig& parallel, std::int64_t processes);

/// How a message names a setting: as the user has given it.
using SaySetting = std::function<std::string(const char* name)>;

/// What is wrong with the settings on `world_size` ranks: the rule, the numbers and choices that fit; empty: nothing.
/// ranks_per_host 0: not known, hybrid strategies are then not looked at. `say` empty: settings by their names.
std::string mesh_problem(const RunConfig& config, int world_size, int ranks_per_host, const SaySetting& say = {});

/// The axes of `world_size` ranks on hosts of `ranks_per_host` consecutive ranks, at least 1 each:
///   ddp                     dp_shard = 1: nothing is sharded, over cp neither
///   zero*, full_shard, ...  dp_shard = dp, or shard_group_size / cp: it counts the ranks of dp_shard x cp
///   hybrid_shard*           dp_shard x cp = shard_group_size, or the ranks of a host that are of one stage / tp
/// where dp = world_size / (pp x tp x cp), and dp_replicate = dp / dp_shard. Throws InputError with mesh_problem().
layout::Mesh run_mesh(const RunConfig& config, int world_size, int ranks_per_host);

/// What is wrong with an optimizer beside tp_size: its updates mix numbers of whole matrices, of which a process has a
/// part; empty: nothing. `said`: how the user has given it.
std::string problem_of_optimizer(OptimizerKind optim, const ParallelConfig& parallel,
                                 const std::string& said = "optim");

}  // namespace tessera::config
