#pragma once
/// \file
/// One rank as seen by its agent: the process and its captured output.

#include <tessera/launch/agent/output.h>
#include <tessera/launch/agent/process.h>
#include <tessera/launch/fleet/host.h>

#include <poll.h>

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

using AgentClock = std::chrono::steady_clock;

inline AgentClock::duration clock_seconds(double value) {
  return std::chrono::duration_cast<AgentClock::duration>(std::chrono::duration<double>(value));
}

struct LocalRank {
  /// Starts the rank. Throws InputError.
  LocalRank(Host& host, ProcessOptions process, int rank, int local_rank, int generation);

  std::string name() const;  ///< "rank 2 (pid 7)"
  RankSlot& slot() const { return host->board.slot(local_rank); }
  /// Whether the rank is a Tessera program that has reached tessera::init().
  bool on_board() const;
  /// The process shown on the board if it is the rank's own process or a descendant of it (when the rank is a script);
  /// otherwise the rank's own process.
  pid_t watched_pid() const;

  void watch_output(std::vector<pollfd>& descriptors);
  /// Passes on the output written so far. `all`, once the rank has exited: also reads everything that is in the pipe at
  /// that time (at most the kernel's limit of 1 MiB), however slow our reader is. It stops there, because a process
  /// that the rank left running may keep writing forever.
  void read_output(bool all);

  /// Asks it to exit with a signal; SIGKILL follows at `kill_at`, or at an earlier deadline that is already set.
  void ask(int signal, AgentClock::time_point kill_at);
  void kill();
  /// Passes on the rest of its output and reaps the process. Call it once none of the rank's processes is running.
  void collect();

  Host* host;
  int rank, local_rank;
  RankOutput output;
  Process process;
  std::optional<int> status;  ///< wait status of the process itself; its children may still run
  std::int64_t ended_ns = 0;  ///< when the agent noticed the exit
  bool killed = false;        ///< we killed it with SIGKILL
  bool hurried = false;       ///< we sent it a signal while it was running, so death by a signal is not its own failure
  bool asked = false;         ///< a signal that asks it to exit has been sent
  std::optional<AgentClock::time_point> kill_at;
  bool gone = false;  ///< none of its processes is left
};

}  // namespace tessera::launch
