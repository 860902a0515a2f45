#pragma once
/// \file
/// Reads the file of --args_file, starting from its name.

#include <tessera/config/core/translation.h>

#include <string>

namespace tessera::config {

struct Resolved;

/// Reads arguments from a .json or .yaml file, which may contain any of our settings as well. `so_far`: the settings
/// given so far. A file of another system is reported as a problem, with the flag that accepts it.
Translation read_training_args_file(const std::string& path, const Resolved& so_far, Problems& problems);

}  // namespace tessera::config
