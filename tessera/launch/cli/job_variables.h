#pragma once
/// \file
/// The environment as the settings of a run see it (config::resolve_flags).

#include <tessera/launch/cli/environment.h>

namespace tessera::launch {

/// This process's variables, but WORLD_SIZE is the number of ranks of the job, whichever launcher started it (mpirun
/// and srun have names of their own); not set when none has.
std::function<std::optional<std::string>(const std::string&)> job_variables(const RankEnvironment& environment);

}  // namespace tessera::launch
