#pragma once
/// \file
/// One rank as its agent holds it: the process, and its output on the way to ours.

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
  /// Starts it. Throws InputError.
  LocalRank(Host& host, ProcessOptions process, int rank, int local_rank, int generation);

  std::string name() const;  ///< "rank 2 (pid 7)"
  RankSlot& slot() const { return host->board.slot(local_rank); }
  /// Whether it is a program of ours that has come to tessera::init().
  bool on_board() const;
  /// The process that the board shows, if it is the rank's own or one that it started (a script's); else the rank's
  /// own.
  pid_t watched_pid() const;

  void watch_output(std::vector<pollfd>& descriptors);
  /// Passes on what it has written. `all`, once it has ended: whatever the pipe still holds (the kernel's limit is
  /// 1 MiB), however much our reader is behind; no more, since something it left running may write for ever.
  void read_output(bool all);

  /// Asks it to end with a signal; SIGKILL at `kill_at`, or sooner if that was said before.
  void ask(int signal, AgentClock::time_point kill_at);
  void kill();
  /// Once nothing of it runs any more: the rest of its output is passed on, the process collected.
  void collect();

  Host* host;
  int rank, local_rank;
  RankOutput output;
  Process process;
  std::optional<int> status;  ///< wait status of the process itself; what it started may still run
  std::int64_t ended_ns = 0;  ///< when the agent saw that
  bool killed = false;        ///< by us, with SIGKILL
  bool hurried = false;       ///< sent a signal by us while it ran: a death by one is not its own
  bool asked = false;         ///< it has been sent a signal that asks it to end
  std::optional<AgentClock::time_point> kill_at;
  bool gone = false;  ///< nothing of it is left
};

}  // namespace tessera::launch
