#pragma once
/// \file
/// launch/agent/: the agent, one per host of a job. It starts N ranks of a program, prefixes and forwards their output,
/// watches them, names the first that fails, and ends or restarts all of them.

#include <tessera/launch/store/store_secret.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

struct LaunchOptions {
  int num_processes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;          ///< 0: chooses a free port; a given port that is in use causes an InputError before
                                ///< anything starts
  bool prefix_output = true;    ///< "[rank 1] " before each line of every rank; false: ranks write directly
  int threads_per_process = 0;  ///< OMP_NUM_THREADS of the ranks when > 0; 0: unless it is set, cores / num_processes,
                                ///< at least 1
  double grace_seconds = 2;     ///< seconds after the first failure within which all processes are ended: SIGTERM, then
                                ///< SIGKILL
  bool prefix_rank0 = true;     ///< false: rank 0's output passes unchanged (it may draw a progress line)
  double stop_seconds = 60;     ///< after SIGINT/SIGTERM to the agent: time to save before SIGKILL
  std::string job;              ///< shown to users and passed as TESSERA_JOB: the program and its output folder; empty:
                                ///< the command

  std::string configuration;  ///< text that each rank can read from TESSERA_CONFIG_FD; empty: none

  // Several hosts: one agent each (fleet.h).
  int num_machines = 1;
  int machine_rank = 0;
  std::optional<Secret> secret;  ///< shared by all agents of the job; not set: generated here (one host only)
  double host_timeout = 30;      ///< a machine without contact for this many seconds is lost (fleet.h)
  std::string host_label;        ///< "node7": "[node7 rank 3] " before each line; empty: "[rank 3] "
  /// Started by run_over_ssh (ssh.h): this agent replaces an earlier one on its machine, its output goes to the
  /// terminal that all agents share, and SIGHUP means that its launcher is gone.
  bool by_launcher = false;

  // Liveness watching (liveness.h). A program that never calls tessera::init() is watched by its pidfd only.
  int max_restarts = 0;      ///< how many times all ranks are restarted after a failure
  double restart_pause = 1;  ///< seconds before a restart after a generation without progress; doubled each time
                             ///< (restart_pause.h)
  double restart_pause_most = 30;
  double monitor_interval = 0.1;   ///< seconds between checks of the heartbeats; the exit of a process is noticed at
                                   ///< once
  double heartbeat_timeout = 2.5;  ///< a rank whose heartbeat is older than this is frozen; 0: never
  double hang_timeout = 0;         ///< seconds that a rank may sleep while nothing progresses; 0: 300 s; < 0: unlimited
  bool only_report = false;        ///< frozen and hanging ranks are reported, but the job continues (for debugging)

  // Output of the ranks (output.h).
  std::string log_dir;             ///< folder for files with every rank's output and the agent's reports; empty: none
  int tee = 3;                     ///< with log_dir, streams that are also shown here: 1 standard output, 2 standard
                                   ///< error, 3 both
  std::map<int, int> tee_of_rank;  ///< exceptions to `tee`, by local rank
  std::vector<int> shown_ranks;    ///< local ranks whose output is shown here; empty: all
  bool bind_cores = false;         ///< each rank is bound to its own share of this host's cores
  std::string bind_core_list;      ///< the cores to share out, "0-3,8"; empty: all cores that this process may use
};

/// Runs the job to its end. Returns the exit code of the first rank that failed (128 + signal for a signal), or 0 when
/// all ranks succeeded.
///
/// Environment of the ranks: torchrun's variables (RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK ...
/// MASTER_ADDR MASTER_PORT OMP_NUM_THREADS) and our own (rank_variables.h): TESSERA_LAUNCHER=1, the board, the store
/// with its secret, generation and job. MASTER_PORT is free for the program. Their standard input is empty.
///
/// The first failing rank is reported with its last activity (verdict.h); frozen ranks and hangs are detected
/// (liveness.h, wait_graph.h). A failure is followed by up to max_restarts new generations, unless the exit code is 2,
/// 3 or 130; no process of the old generation is left when the next one starts. With several hosts all of this holds
/// for the whole job.
///
/// SIGINT and SIGTERM are passed on once. The ranks then have stop_seconds to exit; a second signal (at least half a
/// second later) ends them at once. The result is 130 after SIGINT, and the ranks' own exit code after SIGTERM (3 =
/// stopped after saving). A Tessera rank (one that has reached the board) that exits with 3 by itself counts as such a
/// request, not as a failure.
///
/// No process that the ranks started outlives this call. If the agent is killed, none of their process groups outlives
/// it (watchdog.h); only processes that called setsid() may. Throws InputError when the program cannot be started
/// (ranks that were started are terminated) or the port is in use. Call it from the main thread of a process without
/// other threads.
int run(const std::vector<std::string>& command, const LaunchOptions& options);

}  // namespace tessera::launch
