#pragma once
/// \file
/// The file of --fsdp_config: Hugging Face's TrainingArguments.fsdp_config (transformers 4 and 5) and the fsdp_config
/// section of accelerate's YAML, FSDP versions 1 and 2. A front end: it only translates keys into our settings.
///
/// Names and accepted values: transformers/training_args.py, accelerate/utils/dataclasses.py
/// (FullyShardedDataParallelPlugin) and accelerate/commands/launch.py. Every key is accepted with and without the
/// prefix "fsdp_". Keys that those programs accept and ignore take effect here where possible; otherwise a note names
/// them.

#include <tessera/base/value.h>
#include <tessera/config/core/translation.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// The file that --fsdp_config names: `given`, or the only file in that folder. Throws InputError if it does not exist.
std::string fsdp_config_path(const std::string& given);

/// `given`: a JSON file (YAML if it ends in .yaml or .yml), its folder, or a JSON object. In a file with a section
/// fsdp_config (accelerate's own) that section is read. Unknown keys (with the nearest known one), values of the wrong
/// type, and conflicting spellings of one key are added to `problems`, each with file and line. `compat` v4: "version":
/// 2 without reshard_after_forward means false, as in transformers 4 (in 5 and in accelerate: true).
Translation read_fsdp_config(const std::string& given, Problems& problems, std::optional<Compat> compat = {});

/// The same for a section of another file.
Translation read_fsdp_section(const Value& section, Problems& problems, std::optional<Compat> compat = {});

/// How each key is handled, without the prefix "fsdp_".
std::span<const KeyRow> fsdp_keys();

}  // namespace tessera::config
