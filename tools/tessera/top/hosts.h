#pragma once
/// \file
/// tessera top --hostfile: what `tessera top` says on each host of a job, asked over ssh. Torch-free.

#include <string>

namespace tessera::tool {

/// Asks all hosts of the file at once (the first directly when it is this one, the others with ssh as `tessera launch
/// --hostfile` does, by the same path of the program) and prints a table for each under its name, or one JSON object
/// {"hosts": {NAME: what top --json says there}, "failed": {NAME: reason}}. Returns 0, or 1 when a host did not answer
/// within 20 s. A wrong file throws InputError with its line.
int top_of_hosts(const std::string& hostfile, bool as_json);

}  // namespace tessera::tool
