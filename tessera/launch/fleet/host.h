#pragma once
/// \file
/// What the agent of a host holds for the whole job, while generations of ranks come and go: signals, watchdog, its
/// output, the rendezvous store, the agents of other hosts, the board.

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
  /// Checks what can be checked before anything starts; opens the report file; serves the store; meets the other hosts
  /// (which may take as long as they take). Throws InputError, and Error when the others do not come.
  Host(const std::vector<std::string>& command, const LaunchOptions& options);

  /// Where the ranks of the first generation run.
  FleetPlan first_plan() const;

  /// A line for people, on standard error and in LOG_DIR/agent.log.
  void say(const std::string& text);
  /// The same of what concerns all machines alike: where one terminal shows all agents, machine 0 says it.
  void say_for_all(const std::string& text);
  /// In LOG_DIR/agent.log only.
  void note(const std::string& text);
  /// The launcher that started this agent is gone: without a request to stop, which machine 0 tells where the whole
  /// launcher is gone, this agent ends soon, as one that was killed, and another takes its place.
  void launcher_is_gone();
  void stay() { leave_at_.reset(); }  ///< the job stops: this agent ends with all others
  bool must_leave() const { return leave_at_ && std::chrono::steady_clock::now() >= *leave_at_; }

  /// The lines of a report, indented.
  void say_lines(const std::string& text);
  /// A file beside the ranks' logs for what is too long for the terminal; returns its path, empty without a log_dir.
  std::string write_report(const std::string& name, const std::string& text);
  /// Where rank 0 draws a progress line on the terminal, other lines first clear it.
  std::string line_start(int fd) const;

  const std::vector<std::string> command;
  const LaunchOptions options;
  SignalQueue signals;
  Watchdog watchdog;
  OutputSink out, err;
  OomWatch oom;
  const Secret secret;
  const UniqueFd secret_fd;
  const UniqueFd configuration_fd;   ///< none when LaunchOptions::configuration is empty
  std::optional<StoreServer> store;  ///< on machine 0
  std::string store_where;           ///< "host:port" of it
  std::unique_ptr<Fleet> fleet;      ///< with several hosts
  std::string job;                   ///< a random id, equal on all hosts of the job
  Board board;                       ///< board of this host's ranks; made for the first generation
  MemoryFolder memory;               ///< with max_restarts: what ranks leave for the ranks after them

 private:
  void meet_others();
  void write_line(const std::string& line);
  void write_report_line(const std::string& line);
  std::optional<std::chrono::steady_clock::time_point> leave_at_;
  UniqueFd report_;
};

}  // namespace tessera::launch
