#pragma once
/// \file
/// The environment of a rank: torchrun's variables, and TESSERA_* for Tessera programs.

#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/fleet/fleet.h>

#include <string>

namespace tessera::launch {

/// Additional descriptors and settings that a rank inherits; descriptor -1: none.
struct Inheritance {
  int board_fd = -1;
  int secret_fd = -1;
  int configuration_fd = -1;
  std::string store;   ///< "host:port" of the agents' store; empty: none
  std::string job;     ///< the job's id
  std::string memory;  ///< folder in memory that outlives the ranks; empty: none
};

/// Returns the variables of the rank with local rank `local_rank` on this host. MASTER_PORT is free for the program's
/// own use.
Environment rank_variables(int local_rank, const FleetPlan& plan, const LaunchOptions& options,
                           const Inheritance& inheritance);

}  // namespace tessera::launch
