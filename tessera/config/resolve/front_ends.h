#pragma once
/// \file
/// Which files and variables a run is described by besides its flags, and in which order they are heard:
///
///   default < accelerate's YAML (--config_file) < our file (--config)
///           < TrainingArguments' file (a .json or .yaml argument) < environment of `accelerate launch` < flags
///
/// accelerate's file must agree with what the others say explicitly, num_processes apart. DeepSpeed's JSON
/// (--deepspeed) is read last, since its "auto" values are filled from all of these, and must agree with them, too:
/// contradictions are listed together.

#include <tessera/config/core/translation.h>

namespace tessera::config {

/// Reads what `resolved.values.files` names and the environment. Called by resolve_flags, after the flags and before
/// resolve_sharding.
void read_front_ends(Resolved& resolved, Problems& problems, const GetEnvironment& environment);

}  // namespace tessera::config
