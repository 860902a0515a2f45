#pragma once
/// \file
/// The environment from which a run's settings are resolved (config::resolve_flags).

#include <tessera/launch/cli/environment.h>

namespace tessera::launch {

/// Returns a lookup of this process's variables, except that WORLD_SIZE is the number of ranks of the job under any
/// launcher (mpirun and srun use other names); not set without a launcher.
std::function<std::optional<std::string>(const std::string&)> job_variables(const RankEnvironment& environment);

}  // namespace tessera::launch
