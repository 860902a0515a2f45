#pragma once
/// \file
/// The kernel's view of an unresponsive process: /proc/PID.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

namespace tessera::launch {

struct ProcStatus {
  char state = '?';     ///< process state: R S D T t Z X, see state_text; the most significant one among its threads
  bool traced = false;  ///< a debugger is attached (TracerPid)
  std::int64_t cpu_ticks = 0;  ///< user + system time of all threads, in clock ticks
  /// Total time that its threads were runnable without a processor; 0 where the kernel does not account it.
  std::int64_t cpu_wait_ns = 0;
};

/// nullopt when the process does not exist.
std::optional<ProcStatus> read_proc_status(pid_t pid);

/// "T (stopped by a signal)", "D (waits for a disk or a network file system)", ...
std::string state_text(char state);

/// Lists every thread of a process, one per line: name, state, the kernel function it sleeps in, its system call; for
/// one that waits for a disk also its kernel stack, where this user may read it. Needs no debugger and does not disturb
/// the process. Empty when the process is gone.
std::string thread_overview(pid_t pid);

}  // namespace tessera::launch
