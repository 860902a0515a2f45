#pragma once
/// \file
/// launch/agent/: what runs on every host of a job: starts the ranks, passes on their output, watches them, ends or
/// restarts them.
///
/// The agent of one host: starts N ranks of a program, prefixes their output, names the first that fails, ends the
/// rest.

#include <tessera/launch/store/store_secret.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

struct LaunchOptions {
  int num_processes = 1;
  std::string master_addr = "127.0.0.1";
  int master_port = 0;          ///< 0: a free port is chosen; given and in use: InputError before anything starts
  bool prefix_output = true;    ///< "[rank 1] " before each line of every rank; false: ranks write straight through
  int threads_per_process = 0;  ///< sets OMP_NUM_THREADS when > 0 or unset: cores / num_processes, at least 1
  double grace_seconds = 2;     ///< after the first failure everything is gone within this: SIGTERM, then SIGKILL
  bool prefix_rank0 = true;     ///< false: what rank 0 writes passes as it is (it may draw a progress line)
  double stop_seconds = 60;     ///< after SIGINT/SIGTERM to the agent: time to save before SIGKILL
  std::string job;              ///< for people and TESSERA_JOB: the program and its output folder; empty: the command

  std::string configuration;  ///< text that each rank can read from TESSERA_CONFIG_FD; empty: none

  // Several hosts: one agent each (fleet.h).
  int num_machines = 1;
  int machine_rank = 0;
  std::optional<Secret> secret;  ///< what all agents of the job share; none: drawn here (one host only)
  double host_timeout = 30;      ///< a machine that gives no sign for so many seconds is lost (fleet.h)
  std::string host_label;        ///< "node7": "[node7 rank 3] " before each line; empty: "[rank 3] "
  /// Started by run_over_ssh (ssh.h): this agent takes the place of a former one of its machine, people read it on the
  /// terminal of all agents, and SIGHUP says that its launcher is gone.
  bool by_launcher = false;

  // Liveness watching (liveness.h). A program that never comes to tessera::init() is watched by its pidfd only.
  int max_restarts = 0;      ///< times that all ranks are started again after a failure
  double restart_pause = 1;  ///< seconds before a restart after no progress; doubled each time (restart_pause.h)
  double restart_pause_most = 30;
  double monitor_interval = 0.1;  ///< seconds between two looks at the heartbeats; the end of a process is seen at once
  double heartbeat_timeout = 2.5;  ///< a rank whose heartbeat is older than this is frozen; 0: never
  double hang_timeout = 0;         ///< seconds that a rank may sleep while nothing gets on; 0: 300; < 0: for ever
  bool only_report = false;        ///< frozen and hanging ranks are named, but the job goes on (for debugging)

  // Output of the ranks (output.h).
  std::string log_dir;             ///< files of every rank's output and the agent's reports; empty: none
  int tee = 3;                     ///< with log_dir, what also comes here: 1 standard output, 2 standard error, 3 both
  std::map<int, int> tee_of_rank;  ///< local ranks that differ from `tee`
  std::vector<int> shown_ranks;    ///< local ranks whose output comes here at all; empty: all
  bool bind_cores = false;         ///< each rank keeps to its own share of this host's cores
  std::string bind_core_list;      ///< the cores to share out, "0-3,8"; empty: all that this process may use
};

/// Runs the job to its end and returns the exit code of the first rank that failed (128 + signal for a signal), 0 when
/// all are done.
///
/// Environment of the ranks: torchrun's (RANK LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK NODE_RANK ...
/// MASTER_ADDR MASTER_PORT OMP_NUM_THREADS) and ours (rank_variables.h): TESSERA_LAUNCHER=1, the board, the store with
/// its secret, generation and job. MASTER_PORT is free for the program. Their standard input is empty.
///
/// The first failing rank is named with what it did last (verdict.h); frozen ranks and hangs are found (liveness.h,
/// wait_graph.h). A failure is followed by up to max_restarts new generations, unless the exit code is 2, 3 or 130;
/// nothing of the old one is left when the next one starts. With several hosts all of this holds for the whole job.
///
/// SIGINT and SIGTERM are passed on once; the ranks then have stop_seconds, a second signal (half a second or more
/// later) ends them at once. The result is 130 after SIGINT, and the ranks' own exit code after SIGTERM (3 = stopped
/// after saving). A rank of ours (one that has come to the board) that ends with 3 by itself is
/// such a request, not a failure.
///
/// No process that the ranks started outlives this call. If the agent is killed, none of their process groups outlives
/// it (watchdog.h): only what called setsid(). Throws InputError when the program cannot be started (what was started
/// is ended) or the port is in use. Call it from the main thread of a process without other threads.
int run(const std::vector<std::string>& command, const LaunchOptions& options);

}  // namespace tessera::launch
