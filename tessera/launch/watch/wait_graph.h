#pragma once
/// \file
/// Who keeps whom waiting: the culprit of a hang, from the records of what each rank has begun (record.h).
///
/// A rank waits for every member of a group that has not begun the collective which it has begun, and for the peer of
/// an unfinished send or receive. Who is waited for, and waits for nobody, is the culprit; if there is none, the ranks
/// wait for each other in a circle.
///
/// A rank waits only while it is blocked in a collective (RankSlot::blocked_in), where that is known.

#include <tessera/launch/agent/board.h>

#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

/// What is known of one rank.
struct RankView {
  int rank = 0;
  pid_t pid = 0;
  RankState state = RankState::running;
  std::string phase;  ///< "forward"; may be empty
  std::string place;  ///< RankSlot::place
  std::int64_t step = 0;
  char process_state = 'S';    ///< proc_status.h
  std::vector<Entry> entries;  ///< its last collectives, oldest first
  bool gone = false;           ///< its process has ended, or it has left the job: nothing more will come of it
  /// The entry in which all of its threads that start collectives are blocked. None with `knows_blocked`: it is outside
  /// of any collective, whatever it has begun.
  std::optional<std::uint64_t> blocked_in;
  bool knows_blocked = false;  ///< `blocked_in` is known; else what it has begun and not finished counts
};

/// What a slot says of its rank, with RankSlot::blocked_in.
RankView view_of(const RankSlot& slot, int rank, pid_t pid);

struct WaitVerdict {
  std::vector<int> culprits;  ///< ranks, ascending; all of the circle, or all ranks when nobody is to blame alone
  std::string text;           ///< a sentence for people that names them, what they do and what the others wait for
  /// Nobody will ever come: the ranks wait for each other, for one that is gone, or in a collective that all of their
  /// peers have passed.
  bool certain = false;
};

/// `now_ns`: CLOCK_MONOTONIC, for "ended 5.2 s ago".
WaitVerdict find_culprit(const std::vector<RankView>& ranks, std::int64_t now_ns);

/// "step 40, forward; its last collective: all_reduce #12 of group 'world' (...), not finished": what a rank was doing.
std::string describe_place(const RankView& rank, std::int64_t now_ns);

}  // namespace tessera::launch
