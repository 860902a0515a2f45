#pragma once
/// \file
/// The agent of one host: starts N ranks of a program, prefixes their output, names the first that fails, ends the rest.

#include <string>
#include <vector>

namespace tessera::launch {

struct LaunchOptions {
  int num_processes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;               ///< 0: a free port is chosen; given and in use: InputError before anything starts
  bool prefix_output = true;         ///< "[rank 1] " before each line of every rank
  bool pass_store_socket = false;    ///< bind + listen the port here and hand the socket to rank 0 (our own programs)
  int threads_per_process = 0;       ///< sets OMP_NUM_THREADS when > 0 or unset: cores / num_processes, at least 1
  double grace_seconds = 2;          ///< between the first failure (SIGTERM to the rest) and SIGKILL of what is left
};

/// Runs the job to its end and returns the exit code of the first rank that failed (128 + signal for a signal), 0 when
/// all are done. SIGINT/SIGTERM are passed on; no process outlives this call, and ranks die if the agent is killed
/// (PR_SET_PDEATHSIG). Throws InputError when the program cannot be started or the port is in use.
int run(const std::vector<std::string>& command, const LaunchOptions& options);

}  // namespace tessera::launch
