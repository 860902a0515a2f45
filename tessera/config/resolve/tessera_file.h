#pragma once
/// \file
/// Our own file (--config FILE): settings by their names in YAML or JSON.
///
///     learning_rate: 3e-4              # by name, or
///     sharding:                        # below the name of its section (--print_config shows them)
///       strategy: full_shard
///     gradient_checkpointing_kwargs: {every: 2}
///
/// A leaf may be what --print_config and `tessera config show` print: {"value": 3e-4, "origin": "--learning_rate"};
/// those that nobody gave (origin "default" or "derived (...)") are passed over, so that such a tree gives the same run
/// again. Other systems' names of settings (fields.h, training_args.h) are understood as flags are.

#include <tessera/config/core/translation.h>

#include <string>

namespace tessera::config {

/// All problems at once, each with file, line and column. A file of more than 256 KiB is refused.
Translation read_tessera_file(const std::string& path, Problems& problems);
/// The same for a file that has been parsed.
Translation read_tessera(const Value& file, const std::string& path, Problems& problems);

}  // namespace tessera::config
