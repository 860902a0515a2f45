#pragma once
/// \file
/// The agent's state for the whole job, across generations of ranks: signals, watchdog, output, the rendezvous store,
/// the agents of other hosts, the board.

#include <tessera/launch/agent/board.h>
#include <tessera/launch/agent/launcher.h>
#include <tessera/launch/agent/memory_folder.h>
#include <tessera/launch/agent/oom.h>
#include <tessera/launch/agent/output.h>
#include <tessera/launch/agent/signal_queue.h>
#include <tessera/launch/agent/watchdog.h>
#include <tessera/launch/fleet/fleet.h>
#include <tessera/launch/store/store_server.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

class Host {
 public:
  /// Checks everything that can be checked before the start; opens the report file; starts the store; waits for the
  /// other hosts (which can take arbitrarily long). Throws InputError, and Error if the others do not join.
  Host(const std::vector<std::string>& command, const LaunchOptions& options);

  /// The plan of the first generation: which ranks run where.
  FleetPlan first_plan() const;

  /// Prints a line for the user, on standard error and in LOG_DIR/agent.log.
  void say(const std::string& text);
  /// The same for news that concerns all machines: if one terminal shows all agents, only machine 0 prints it.
  void say_for_all(const std::string& text);
  /// Writes to LOG_DIR/agent.log only.
  void note(const std::string& text);
  /// The launcher that started this agent is gone. Unless a stop is requested, which machine 0 reports when the whole
  /// launcher is gone, this agent soon exits as if it were killed, and another replaces it.
  void launcher_is_gone();
  void stay() { leave_at_.reset(); }  ///< the job stops: this agent exits together with all others
  bool must_leave() const { return leave_at_ && std::chrono::steady_clock::now() >= *leave_at_; }

  /// Prints the lines of a report, indented.
  void say_lines(const std::string& text);
  /// Writes a text that is too long for the terminal to a file next to the ranks' logs; returns its path, which is
  /// empty without a log_dir.
  std::string write_report(const std::string& name, const std::string& text);
  /// The escape sequence that clears rank 0's progress line before another line is printed; empty if `fd` shows no
  /// progress line.
  std::string line_start(int fd) const;

  const std::vector<std::string> command;
  const LaunchOptions options;
  SignalQueue signals;
  Watchdog watchdog;
  OutputSink out, err;
  OomWatch oom;
  const Secret secret;
  const UniqueFd secret_fd;
  const UniqueFd configuration_fd;   ///< not set if LaunchOptions::configuration is empty
  std::optional<StoreServer> store;  ///< on machine 0
  std::string store_where;           ///< its "host:port"
  std::unique_ptr<Fleet> fleet;      ///< with several hosts
  std::string job;                   ///< a random id, equal on all hosts of the job
  Board board;                       ///< board of this host's ranks; made for the first generation
  MemoryFolder memory;               ///< with max_restarts: files that ranks leave for the next generation

 private:
  void meet_others();
  void write_line(const std::string& line);
  void write_report_line(const std::string& line);
  std::optional<std::chrono::steady_clock::time_point> leave_at_;
  UniqueFd report_;
};

}  // namespace tessera::launch
