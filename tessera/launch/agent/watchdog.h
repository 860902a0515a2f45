#pragma once
/// \file
/// A small process that outlives an agent killed with SIGKILL and ends the processes left behind.
///
/// PR_SET_PDEATHSIG ends the ranks themselves but not their descendants (a shell's children, data workers). The
/// watchdog knows the process group of every rank and waits for the other end of its socket to close, which the kernel
/// does however the agent dies. Then it also removes the agent's folder in memory, which would otherwise stay until
/// another agent starts.

#include <sys/types.h>

#include <tessera/launch/agent/unique_fd.h>

#include <string>

namespace tessera::launch {

class Watchdog {
 public:
  /// Forks the watchdog. Throws InputError when no process or socket is available for it.
  Watchdog();
  /// Ends the watchdog and waits for its exit; groups that were not forgotten are killed.
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  /// For ProcessOptions::announce_fd.
  int announce_fd() const noexcept { return socket_.get(); }
  /// Call before the group's leader is reaped: afterwards the kernel may reuse its id.
  void forget(pid_t group) const noexcept;
  /// Registers a folder to remove, with its contents, once the groups are gone if the agent is killed. An empty path
  /// unregisters it. Only one folder can be registered; paths of 255 bytes or more are ignored.
  void own_folder(const std::string& path) const noexcept;

 private:
  UniqueFd socket_;
  pid_t pid_ = -1;
};

/// Registers a process group. Async-signal-safe: called between fork and exec.
void announce_group(int announce_fd, pid_t group) noexcept;

}  // namespace tessera::launch
