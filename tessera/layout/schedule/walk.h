#pragma once
/// \file
/// The one run of the model of check.h that decides whether a schedule deadlocks and when everything happens.

#include <tessera/layout/schedule/timing.h>

#include <vector>

namespace tessera::layout::schedule {

/// A rank that does not go on.
struct Stopped {
  int rank = 0;
  std::size_t position = 0;  ///< the action that waits: a send (for room) or a receive
  int waits_for = 0;         ///< the rank at the other end
};

struct Walked {
  std::vector<std::vector<TimedAction>> ranks;  ///< what was done
  std::vector<Stopped> stopped;                 ///< empty: everybody reached the end
};

/// `schedule` has all its messages and obeys all rules of check.h but, perhaps, that about circles.
Walked walk(const Schedule& schedule, const Costs& costs);

}  // namespace tessera::layout::schedule
