#pragma once
/// \file
/// Who keeps whom waiting: the culprit of a hang, from the records of what each rank has begun (record.h).
///
/// A rank waits for every member of a group that has not begun the collective which it has begun, and for the peer of
/// an unfinished send or receive. Who is waited for, and waits for nobody, is the culprit; if there is none, the ranks
/// wait for each other in a circle.

#include <tessera/launch/agent/board.h>

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
};

struct WaitVerdict {
  std::vector<int> culprits;  ///< ranks, ascending; all of the circle, or all ranks when nobody is to blame alone
  std::string text;           ///< a sentence for people that names them, what they do and what the others wait for
};

/// `now_ns`: CLOCK_MONOTONIC, for "ended 5.2 s ago".
WaitVerdict find_culprit(const std::vector<RankView>& ranks, std::int64_t now_ns);

/// "step 40, forward; its last collective: all_reduce #12 of group 'world' (...), not finished": what a rank was doing.
std::string describe_place(const RankView& rank, std::int64_t now_ns);

}  // namespace tessera::launch
