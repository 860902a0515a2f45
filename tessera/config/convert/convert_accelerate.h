#pragma once
/// \file
/// accelerate's file as a file: what `accelerate config default`, `config update` and `to-fsdp2` do to it, without what
/// they get wrong.

#include <tessera/base/value.h>
#include <tessera/config/core/origin.h>

#include <string>
#include <vector>

namespace tessera::config {

/// $HF_HOME/accelerate/default_config.yaml; without HF_HOME, below $XDG_CACHE_HOME/huggingface or ~/.cache/huggingface.
/// Throws InputError when no variable says where (no HOME).
std::string default_accelerate_path(const GetEnvironment& environment = {});

/// What `default` writes for a machine with so many GPUs. `mixed_precision`: no | fp16 | bf16; anything else throws
/// InputError.
Value new_accelerate_file(const std::string& mixed_precision, int gpus);

/// Old forms (fp16: true, dynamo_backend: X) in today's words, missing keys with accelerate's defaults, keys in order.
/// `notes`: what was changed. Throws InputError when distributed_type is missing.
Value update_accelerate_file(const Value& file, std::vector<std::string>& notes);

/// fsdp_config of version 1 as version 2. Strategies by name or number; a hybrid one keeps its copies, as
/// parallelism_config (which accelerate's own command loses). A file without fsdp_config or with version 2 comes back
/// as it is. `notes`: what was left out or has another meaning. Throws InputError for what version 2 cannot say.
Value to_fsdp2(const Value& file, std::vector<std::string>& notes);

}  // namespace tessera::config
