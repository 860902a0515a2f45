#pragma once
/// \file
/// Was it the kernel's out-of-memory killer? Its SIGKILL looks like anybody's; the counters of the process's memory
/// cgroup (and, where there is none, of the whole machine) tell them apart.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera::launch {

/// The file with the counter `oom_kill` of the memory cgroup that a /proc/PID/cgroup text names: memory.events (v2) or
/// memory.oom_control (v1) under `mount` (/sys/fs/cgroup). Empty: the text names none.
std::string oom_counter_file(const std::string& cgroup_text, const std::string& mount = "/sys/fs/cgroup");

/// The number after "oom_kill " in a text of either version, or in /proc/vmstat; nullopt when it is not there.
std::optional<std::int64_t> parse_oom_kills(const std::string& text);

class OomWatch {
 public:
  /// Remembers the counters as they are now.
  OomWatch();
  /// Looks at the cgroup of a process that runs: call it now and then, a process may be moved.
  void look(pid_t pid);
  /// Why a process that ended with SIGKILL (and was not reaped) may have been the out-of-memory killer's victim: "the
  /// kernel ended it for want of memory (cgroup ..., limit 512 MiB)"; empty: no counter has grown. A kill is told once.
  std::string explain(pid_t pid);

 private:
  std::map<std::string, std::int64_t> seen_;  ///< by file
  std::map<pid_t, std::string> file_of_;      ///< when it last ran: the kernel no longer tells it of a dead one (v1)
};

}  // namespace tessera::launch
