#pragma once
/// \file
/// The rules for ShardingOptions. An option either has an effect under a strategy or is refused there with the reason;
/// none is silently ignored (tests/sharding/option_effects_test.cpp covers the whole table).

#include <tessera/parallel/fully_shard.h>

namespace tessera::parallel {

/// Throws InputError that names the option, the strategy, the reason and the remedy. The result depends on the
/// strategy, never on the number of ranks, except that `group`'s size (times that of shared_by_experts) must divide
/// logical_shards.
void check_options(const ShardingOptions& options, const comm::Group& group);

}  // namespace tessera::parallel
