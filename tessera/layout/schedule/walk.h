#pragma once
/// \file
/// Simulates the model of check.h: determines whether a schedule deadlocks, and all times.

#include <tessera/layout/schedule/timing.h>

#include <vector>

namespace tessera::layout::schedule {

/// A rank that is blocked.
struct Stopped {
  int rank = 0;
  std::size_t position = 0;  ///< the blocked action: a send (for room) or a receive
  int waits_for = 0;         ///< the rank at the other end
};

struct Walked {
  std::vector<std::vector<TimedAction>> ranks;  ///< completed actions
  std::vector<Stopped> stopped;                 ///< empty: all ranks finished
};

/// `schedule` has all its messages and satisfies all rules of check.h, except possibly the one about deadlocks.
Walked walk(const Schedule& schedule, const Costs& costs);

}  // namespace tessera::layout::schedule
