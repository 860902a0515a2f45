#pragma once
/// \file
/// Where the threads of some processes are: native stacks by gdb (if it is here and allowed to attach), besides what
/// /proc says of each thread. Collected in a poll loop, never waiting for a debugger.

#include <tessera/launch/agent/process.h>
#include <tessera/launch/agent/watchdog.h>

#include <poll.h>

#include <chrono>
#include <list>
#include <string>
#include <vector>

namespace tessera::launch {

class StackDump {
 public:
  struct Target {
    int rank = 0;
    pid_t pid = 0;
  };
  struct Stacks {
    int rank = 0;
    std::string text;  ///< lines: each thread as /proc has it, then gdb's frames or why there are none
  };

  /// Reads /proc at once and starts the first debuggers, as many as there are cores; the others follow. The first
  /// targets come first, and the very first one is told once more with the symbols of all libraries. What is not there
  /// after `seconds` is left out. The watchdog outlives this.
  StackDump(const std::vector<Target>& targets, double seconds, const Watchdog& watchdog);
  ~StackDump();

  void watch(std::vector<pollfd>& descriptors);
  /// Reads what is there, starts the next ones. True once all are done.
  bool turn();
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }
  /// In the order of the targets. After turn() has returned true.
  std::vector<Stacks> take();

 private:
  struct One {
    Target target;
    std::string overview, frames, complaint;
    std::list<Process> debugger;                       ///< none or one
    bool started = false, done = false, late = false;  ///< late: its debugger had no time to end
  };
  void start(One& one);
  void finish(One& one);

  std::list<One> all_;
  std::chrono::steady_clock::time_point deadline_;
  std::size_t at_once_;
  std::string debugger_;  ///< path of gdb; empty: there is none
  const Watchdog* watchdog_;
};

}  // namespace tessera::launch
