#pragma once
/// \file
/// Collects the stacks of processes' threads: native ones with gdb (if it is installed and may attach), and the
/// threads' state from /proc. Runs in a poll loop and never blocks on a debugger.

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
    std::string text;  ///< lines: each thread from /proc, then gdb's frames or the reason why there are none
  };

  /// Reads /proc at once and starts the first debuggers, as many as there are cores; the others follow in the order of
  /// the targets. The very first target is dumped a second time, with the symbols of all libraries. Results that are
  /// missing after `seconds` are omitted. The watchdog must outlive this.
  StackDump(const std::vector<Target>& targets, double seconds, const Watchdog& watchdog);
  ~StackDump();

  void watch(std::vector<pollfd>& descriptors);
  /// Reads available output and starts more debuggers. Returns true once all are done.
  bool turn();
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }
  /// In the order of the targets. Call it after turn() has returned true.
  std::vector<Stacks> take();

 private:
  struct One {
    Target target;
    std::string overview, frames, complaint;
    std::list<Process> debugger;                       ///< none or one
    bool started = false, done = false, late = false;  ///< late: its debugger did not finish in time
  };
  void start(One& one);
  void finish(One& one);

  std::list<One> all_;
  std::chrono::steady_clock::time_point deadline_;
  std::size_t at_once_;
  std::string debugger_;  ///< path of gdb; empty: not installed
  const Watchdog* watchdog_;
};

}  // namespace tessera::launch
