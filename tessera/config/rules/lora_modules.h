#pragma once
/// \file
/// --lora_target_modules and --lora_modules_to_save as values, for those who check, plan and train.

#include <string>
#include <vector>

namespace tessera {
struct ModelConfig;
}

namespace tessera::config {

/// Ends of names of modules, one pattern alone, or PEFT's all-linear (LLaMA-Factory's "all" is the same word); empty:
/// the family's. Throws InputError for an empty name and for a malformed pattern.
std::vector<std::string> lora_targets(const ModelConfig& config);
/// Ends of names. Throws InputError for an empty one.
std::vector<std::string> lora_modules_to_save(const ModelConfig& config);

}  // namespace tessera::config
