#pragma once
/// \file
/// Files and variables that describe a run in addition to its flags, by precedence:
///
///   default < accelerate's YAML (--config_file) < our file (--config)
///           < TrainingArguments' file (a .json or .yaml argument) < environment of `accelerate launch` < flags
///
/// accelerate's file must agree with all explicit settings from other sources, except num_processes. DeepSpeed's JSON
/// (--deepspeed) is read last because its "auto" values are filled from the others; it must agree with them as well.
/// Contradictions are listed together.

#include <tessera/config/core/translation.h>

namespace tessera::config {

/// Reads the files in `resolved.values.files` and the environment. Called by resolve_flags, after the flags and before
/// resolve_sharding.
void read_front_ends(Resolved& resolved, Problems& problems, const GetEnvironment& environment);

}  // namespace tessera::config
