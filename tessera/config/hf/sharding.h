#pragma once
/// \file
/// From the words of several systems to one set of sharding settings: --fsdp's words, --fsdp_config's file,
/// --zero_stage and
/// --strategy all end in ShardingConfig::strategy, cpu_offload and auto_wrap_policy.
///
/// Precedence: default < file < flag of the same name. Two ways of saying what the strategy is must agree, whichever
/// they are; those that do not are listed together.

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

/// Reads --fsdp_config and --fsdp into `resolved` and derives what they leave open. Called by resolve_flags.
void resolve_sharding(Resolved& resolved, Problems& problems);

/// The wrap policy that the settings mean. `model_blocks`: the classes of the model's own blocks, for
/// transformer_based_wrap without names. `modules`: the names of all modules, which ignored_modules is matched against.
/// Throws InputError for bad patterns and for ignored_modules that match nothing.
layout::WrapPolicy wrap_policy(const ShardingConfig& config, const std::vector<std::string>& model_blocks,
                               const std::vector<std::string>& modules);

}  // namespace tessera::config
