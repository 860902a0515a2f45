#pragma once
/// \file
/// What ranks leave behind in sessions of their own (setsid, daemons): no process group of a rank holds it, so that the
/// agent makes itself the one to whom the kernel gives such children when their parents end.

#include <sys/types.h>

#include <set>

namespace tessera::launch {

/// While it lives, this process is the "subreaper" of its descendants (PR_SET_CHILD_SUBREAPER). One at a time, in the
/// thread that starts the ranks.
class Orphans {
 public:
  /// Notes the children that are there: they are none.
  Orphans();
  ~Orphans();
  Orphans(const Orphans&) = delete;
  Orphans& operator=(const Orphans&) = delete;

  /// Ends by SIGKILL, and collects, every child that was not there at the beginning, and what comes to us from it: call
  /// it when no child of one's own is left. Returns how many still ran. Gives up after ten rounds of those that appear
  /// faster than they can be ended.
  int end();

 private:
  std::set<pid_t> before_;
  int former_ = 0;  ///< the setting that was in force
};

}  // namespace tessera::launch
