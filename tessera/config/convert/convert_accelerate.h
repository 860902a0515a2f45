#pragma once
/// \file
/// Edits accelerate's file like `accelerate config default`, `config update` and `to-fsdp2`, without their errors.

#include <tessera/base/value.h>
#include <tessera/config/core/origin.h>

#include <string>
#include <vector>

namespace tessera::config {

/// $HF_HOME/accelerate/default_config.yaml; without HF_HOME, below $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface.
/// Throws InputError if no variable gives a folder (no HOME).
std::string default_accelerate_path(const GetEnvironment& environment = {});

/// The file that `default` writes for a machine with this many GPUs. `mixed_precision`: no | fp16 | bf16; other values
/// throw InputError.
Value new_accelerate_file(const std::string& mixed_precision, int gpus);

/// Replaces old forms (fp16: true, dynamo_backend: X) by current ones, adds missing keys with accelerate's defaults,
/// and sorts the keys. `notes`: the changes. Throws InputError if distributed_type is missing.
Value update_accelerate_file(const Value& file, std::vector<std::string>& notes);

/// Converts fsdp_config version 1 to version 2. Strategies are accepted by name or number; a hybrid one keeps its
/// replicas as parallelism_config (accelerate's own command loses them). A file without fsdp_config, or with version 2,
/// is returned unchanged. `notes`: keys that were dropped or change their meaning. Throws InputError for settings that
/// version 2 cannot express.
Value to_fsdp2(const Value& file, std::vector<std::string>& notes);

}  // namespace tessera::config
