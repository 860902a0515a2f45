#pragma once
/// \file
/// Nothing survives an agent that is killed with SIGKILL: a small process that outlives it and ends what is left.
///
/// PR_SET_PDEATHSIG ends the ranks themselves but not what they started (a shell's children, data workers). The
/// watchdog knows the process group of every rank and waits for the other end of its socket to close, which the kernel
/// does however the agent dies. Then it also removes the agent's folder in memory: nobody else would, until another
/// agent starts.

#include <sys/types.h>

#include <tessera/launch/agent/unique_fd.h>

#include <string>

namespace tessera::launch {

class Watchdog {
 public:
  /// Forks the watchdog. Throws InputError when there is no process or socket left for it.
  Watchdog();
  /// Ends it; groups that were not forgotten are killed. Waits for its end.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// For ProcessOptions::announce_fd.
  int announce_fd() const noexcept { return socket_.get(); }
  /// Call before the group's leader is reaped: afterwards the kernel may give its id to somebody else.
  void forget(pid_t group) const noexcept;
  /// A folder that is removed with all in it once the groups are gone, if the agent is killed. An empty path: none. One
  /// at a time; paths of 255 bytes or more are not kept.
  void own_folder(const std::string& path) const noexcept;

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
};

/// Registers a process group. Async-signal-safe: called between fork and exec.
void announce_group(int announce_fd, pid_t group) noexcept;

}  // namespace tessera::launch
