#pragma once
/// \file
/// Detects the kernel's out-of-memory killer. Its SIGKILL looks like any other; only the counters of the process's
/// memory cgroup (or, without one, of the whole machine) reveal it.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tessera::launch {

/// Path of the file with the `oom_kill` counter of the memory cgroup named in a /proc/PID/cgroup text: memory.events
/// (v2) or memory.oom_control (v1) under `mount` (/sys/fs/cgroup). Empty: the text names none.
std::string oom_counter_file(const std::string& cgroup_text, const std::string& mount = "/sys/fs/cgroup");

/// Returns the number after "oom_kill " in a text of either version, or in /proc/vmstat; nullopt when absent.
std::optional<std::int64_t> parse_oom_kills(const std::string& text);

class OomWatch {
 public:
  /// Records the current counters.
  OomWatch();
  /// Looks up the cgroup of a running process. Call it periodically, because a process can be moved.
  void look(pid_t pid);
  /// Explains why a process that died of SIGKILL (and was not reaped) may have been the out-of-memory killer's victim:
  /// "the kernel ended it because its cgroup was out of memory (FILE, limit 512 MiB)"; empty: no counter has grown.
  /// Each kill is reported once.
  std::string explain(pid_t pid);

 private:
  std::map<std::string, std::int64_t> seen_;  ///< by file
  std::map<pid_t, std::string> file_of_;      ///< last known cgroup file; the kernel (v1) does not report it for a dead
                                              ///< process
};

}  // namespace tessera::launch
