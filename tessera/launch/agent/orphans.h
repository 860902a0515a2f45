#pragma once
/// \file
/// Handles processes that ranks leave behind in sessions of their own (setsid, daemons). They are outside of all the
/// ranks' process groups, so the agent has the kernel reparent these children to it when their parents exit.

#include <sys/types.h>

#include <set>
#include <string>

namespace tessera::launch {

/// While it exists, this process is the "subreaper" of its descendants (PR_SET_CHILD_SUBREAPER). Only one may exist at
/// a time, in the thread that starts the ranks.
class Orphans {
 public:
  /// Records the existing children, which are not orphans. `job`: the TESSERA_JOB of the ranks, which their children
  /// inherit. It is needed because in a container the agent may be process 1, which receives everyone's orphans.
  explicit Orphans(const std::string& job);
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  /// Reaps orphans that have exited, which would otherwise hold their process ids until the end of the job. `own`:
  /// children of this process that are waited for elsewhere.
  void collect(const std::set<pid_t>& own);

  /// Kills with SIGKILL, and reaps, every child of the job that did not exist at the beginning, and the descendants
  /// that we inherit from it. Call it when none of our own children is left. Returns how many were still running. Gives
  /// up after ten rounds, in case new ones appear faster than they can be ended, or after a second (a process that
  /// waits for a lost disk does not die).
  int end();

 private:
  const std::string variable_;  ///< "TESSERA_JOB=..."
  std::set<pid_t> before_;
  int former_ = 0;  ///< the previous PR_SET_CHILD_SUBREAPER setting
};

}  // namespace tessera::launch
