#pragma once
/// \file
/// The file of --args_file, from its name on.

#include <tessera/config/core/translation.h>

#include <string>

namespace tessera::config {

struct Resolved;

/// Arguments in a .json or .yaml file. Also takes every setting of ours. `so_far`: what was given already. A file of
/// another system is a problem that names the flag for it.
Translation read_training_args_file(const std::string& path, const Resolved& so_far, Problems& problems);

}  // namespace tessera::config
