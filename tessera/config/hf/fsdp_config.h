#pragma once
/// \file
/// The file of --fsdp_config: Hugging Face's TrainingArguments.fsdp_config (transformers 4 and 5) and the fsdp_config
/// section of accelerate's YAML, FSDP version 1 and 2. A front end: it translates keys into our settings and acts on
/// nothing.
///
/// Names and accepted values: transformers/training_args.py, accelerate/utils/dataclasses.py
/// (FullyShardedDataParallelPlugin) and accelerate/commands/launch.py. Every key is known with and without the prefix
/// "fsdp_". What those programs accept and then ignore is honoured here where it can be, else named in a note.

#include <tessera/base/value.h>
#include <tessera/config/core/translation.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::config {

/// The file that --fsdp_config names: `given`, or the only one in that folder. Throws InputError without one.
std::string fsdp_config_path(const std::string& given);

/// `given`: the name of a JSON file (of a YAML file when it ends in .yaml or .yml) or of the folder that it is in, or a
/// JSON object. A file that has a
/// section fsdp_config (accelerate's own) is read there. Unknown keys (with the nearest known one), values of a wrong
/// kind, and two spellings of one key that disagree are added to `problems`, each with file and line. `compat` v4:
/// "version": 2 without reshard_after_forward means false, as in transformers 4 (in 5 and in accelerate: true).
Translation read_fsdp_config(const std::string& given, Problems& problems, std::optional<Compat> compat = {});

/// The same for a section that stands in another file.
Translation read_fsdp_section(const Value& section, Problems& problems, std::optional<Compat> compat = {});

/// What becomes of each key, without the prefix "fsdp_".
std::span<const KeyRow> fsdp_keys();

}  // namespace tessera::config
