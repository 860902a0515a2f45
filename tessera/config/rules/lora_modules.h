#pragma once
/// \file
/// Parses --lora_target_modules and --lora_modules_to_save, for checks, planner and training.

#include <string>
#include <vector>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

/// Module name suffixes, a single pattern, or PEFT's all-linear (LLaMA-Factory's "all" is a synonym); empty: the
/// family's default. Throws InputError for an empty name or a malformed pattern.
std::vector<std::string> lora_targets(const ModelConfig& config);
/// Module name suffixes. Throws InputError for an empty one.
std::vector<std::string> lora_modules_to_save(const ModelConfig& config);

}  // namespace tessera::config
