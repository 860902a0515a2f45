#pragma once
/// \file
/// What ranks leave behind in sessions of their own (setsid, daemons): no process group of a rank holds it, so that the
/// agent makes itself the one to whom the kernel gives such children when their parents end.

#include <sys/types.h>

#include <set>
#include <string>

namespace tessera::launch {

/// While it lives, this process is the "subreaper" of its descendants (PR_SET_CHILD_SUBREAPER). One at a time, in the
/// thread that starts the ranks.
class Orphans {
 public:
  /// Notes the children that are there: they are none. `job`: the TESSERA_JOB of the ranks, which what they start
  /// inherits. In a container the agent may be the first process, to which everybody's orphans come.
  explicit Orphans(const std::string& job);
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  /// Collects those that have ended, which would hold their process numbers until the end of the job. `own`: the
  /// children of this process that others wait for.
  void collect(const std::set<pid_t>& own);

  /// Ends by SIGKILL, and collects, every child of the job that was not there at the beginning, and what comes to us
  /// from it: call it when no child of one's own is left. Returns how many still ran. Gives up after ten rounds of
  /// those that appear faster than they can be ended, or after a second (one that waits for a lost disk does not end).
  int end();

 private:
  const std::string variable_;  ///< "TESSERA_JOB=..."
  std::set<pid_t> before_;
  int former_ = 0;  ///< the setting that was in force
};

}  // namespace tessera::launch
