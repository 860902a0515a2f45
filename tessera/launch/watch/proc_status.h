#pragma once
/// \file
/// What the kernel says about a process that does not answer: /proc/PID.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::launch {

struct ProcStatus {
  char state = '?';     ///< state of the process: R S D T t Z X, see state_text; the most telling one of its threads
  bool traced = false;  ///< a debugger is attached (TracerPid)
  std::int64_t cpu_ticks = 0;  ///< user + system time of all threads, in clock ticks
  /// How long its threads, added up, were ready to run but had no processor; 0 where the kernel does not count it.
  std::int64_t cpu_wait_ns = 0;
};

/// nullopt when there is no such process.
std::optional<ProcStatus> read_proc_status(pid_t pid);

/// "T (stopped by a signal)", "D (waits for a disk or a network file system)", ...
std::string state_text(char state);

/// Every thread of a process, one per line: name, state, the kernel function that it sleeps in, its system call; of
/// one that waits for a disk also its kernel stack, where this user may read it. Needs no debugger and disturbs
/// nothing. Empty when it is gone.
std::string thread_overview(pid_t pid);

}  // namespace tessera::launch
