#pragma once
/// \file
/// Finds the culprit of a hang, that is, the rank that keeps the others waiting, from the records of each rank's
/// collectives (record.h).
///
/// A rank waits for every member of a group that has not begun the collective in which it waits, and for the peer of an
/// unfinished send or receive. A rank that is waited for, and waits for nobody, is the culprit; if there is no such
/// rank, the ranks wait for each other in a cycle.
///
/// A rank waits only while it is blocked in a collective (RankSlot::blocked_in), if that is known.

#include <tessera/launch/agent/board.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// The known state of one rank.
struct RankView {
  int rank = 0;
  pid_t pid = 0;
  RankState state = RankState::running;
  std::string phase;  ///< "forward"; may be empty
  std::string place;  ///< RankSlot::place
  std::int64_t step = 0;
  char process_state = 'S';    ///< proc_status.h
  std::vector<Entry> entries;  ///< its last collectives, oldest first
  bool gone = false;           ///< its process has exited, or it has left the job: no more actions will follow
  /// The entry in which all of its threads that start collectives are blocked. nullopt with `knows_blocked`: it is
  /// outside of any collective, regardless of the collectives it has begun.
  std::optional<std::uint64_t> blocked_in;
  bool knows_blocked = false;  ///< `blocked_in` is known; false: unfinished collectives count instead
};

/// Builds the view from a rank's slot, with RankSlot::blocked_in.
RankView view_of(const RankSlot& slot, int rank, pid_t pid);

struct WaitVerdict {
  std::vector<int> culprits;  ///< ranks, ascending; the whole cycle, or all ranks when no single one is to blame
  std::string text;           ///< a sentence for users: the culprits, what they do and what the others wait for
  /// The wait can never end: the ranks wait for each other, for one that is gone, or in a collective that all of their
  /// peers have passed.
  bool certain = false;
};

/// `now_ns`: CLOCK_MONOTONIC, for "ended 5.2 s ago".
WaitVerdict find_culprit(const std::vector<RankView>& ranks, std::int64_t now_ns);

/// Describes a rank's last activity: "step 40, forward; its last collective: all_reduce #12 of group 'world' (...), not
/// finished".
std::string describe_place(const RankView& rank, std::int64_t now_ns);

}  // namespace tessera::launch
