#pragma once
/// \file
/// The rules between ShardingOptions. An option either acts under a strategy or is refused there, with the reason:
/// none is accepted and forgotten (tests/sharding/option_effects_test.cpp goes through the whole table).

#include <tessera/parallel/fully_shard.h>

namespace tessera::parallel {

/// Throws InputError that names the option, the strategy, the reason and the remedy. What is refused depends on the
/// strategy, never on the number of ranks, except that `group`'s size (times that of shared_by_experts) must divide
/// logical_shards.
void check_options(const ShardingOptions& options, const comm::Group& group);

}  // namespace tessera::parallel
