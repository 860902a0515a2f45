#pragma once
/// \file
/// Our own file (--config FILE): settings by name, in YAML or JSON.
///
///     learning_rate: 3e-4              # by name, or
///     sharding:                        # below the name of its section (--print_config shows them)
///       strategy: full_shard
///     gradient_checkpointing_kwargs: {every: 2}
///
/// A leaf may have the form that --print_config and `tessera config show` print: {"value": 3e-4, "origin":
/// "--learning_rate"}. Leaves with the origin "default" or "derived (...)" are skipped, so that such a tree reproduces
/// its run. Other systems' names of settings (fields.h, training_args.h) are accepted as they are for flags.

#include <tessera/config/core/translation.h>

#include <string>

namespace tessera::config {

/// Reports all problems, each with file, line and column. A file of more than 256 KiB is refused.
Translation read_tessera_file(const std::string& path, Problems& problems);
/// The same for a parsed file.
Translation read_tessera(const Value& file, const std::string& path, Problems& problems);

}  // namespace tessera::config
