#pragma once
/// \file
/// Reads the file of --args_file, starting from its name.

#include <tessera/config/core/translation.h>

#include <string>

namespace tessera::config {

struct Resolved;

/// Reads arguments from a .json or .yaml file, which may contain any of our settings as well. `so_far`: the settings
/// given so far. A file of another system is a problem that names the flag for it.
Translation read_training_args_file(const std::string& path, const Resolved& so_far, Problems& problems);

}  // namespace tessera::config
