#pragma once
/// \file
/// tessera top --hostfile: runs `tessera top` on each host of a job over ssh. Torch-free.

#include <string>

namespace tessera::tool {

/// Queries all hosts of the file in parallel (the first directly when it is this one, the others with ssh as `tessera
/// launch --hostfile` does, by the same program path) and prints a table for each under its name, or one JSON object
/// {"hosts": {NAME: output of top --json}, "failed": {NAME: reason}}. Returns 0, or 1 when a host did not answer within
/// 20 s. A malformed file throws InputError with its line.
int top_of_hosts(const std::string& hostfile, bool as_json);

}  // namespace tessera::tool
