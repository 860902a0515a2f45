#pragma once
/// \file
/// Merges several systems' sharding settings: --fsdp, the file of --fsdp_config, --zero_stage and --strategy all result
/// in ShardingConfig::strategy, cpu_offload and auto_wrap_policy.
///
/// Precedence: default < file < flag of the same name. All sources that specify the strategy must agree; contradictions
/// are listed together.

#include <tessera/layout/units.h>

#include <string>
#include <string_view>
#include <vector>

namespace tessera {
struct ShardingConfig;
}

namespace tessera::config {

struct Problems;
struct Resolved;

/// Reads --fsdp_config and --fsdp into `resolved` and derives the remaining settings. Called by resolve_flags.
void resolve_sharding(Resolved& resolved, Problems& problems);

/// The wrap policy of the settings. `model_blocks`: the classes of the model's own blocks, for transformer_based_wrap
/// without names. `modules`: the names of all modules, which ignored_modules is matched against. Throws InputError for
/// invalid patterns and for ignored_modules that match nothing.
layout::WrapPolicy wrap_policy(const ShardingConfig& config, const std::vector<std::string>& model_blocks,
                               const std::vector<std::string>& modules);

}  // namespace tessera::config
