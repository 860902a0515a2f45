#pragma once
/// \file
/// Detects whether the job makes progress. When no rank finishes a collective, a micro-batch, a step or a piece of a
/// long phase, each one is examined (activity.h), and the table in docs/launching.md decides whether it is reported or
/// ended:
///
/// Ended after max(5 s, 5 x p99 step), or 30 s while no step time is known: ranks that can never leave a collective,
/// because all peers have passed it, have left, or wait in a cycle (wait_graph.h). A given hang_timeout is the limit if
/// it is shorter; the limit is quadrupled while a runnable rank gets less than a quarter of a processor.
///
/// Ended after hang_timeout (300 s): a rank that sleeps outside of collectives and declared long phases; all ranks,
/// when they have reached the same collective and sleep there. A second in which it uses at least 5 % of a processor or
/// is seen in state D restarts the time, and so does a sign of progress of any rank.
///
/// Reported, and never ended: a rank that computes, waits for a disk or is in a declared long phase. The first line
/// comes after max(5 s, 5 x p99 step), 30 s while no step time is known, 60 s in a declared phase; each following one
/// after twice the time.
///
/// Not judged: ranks that are still joining (the rendezvous lists the missing ones). hang_timeout < 0: no detection.

#include <tessera/launch/watch/activity.h>
#include <tessera/launch/watch/finding.h>
#include <tessera/launch/watch/wait_graph.h>
#include <tessera/launch/watch/waiting.h>

#include <map>
#include <vector>

namespace tessera::launch {

class ProgressWatch {
 public:
  /// A rank of this generation that has reached the board.
  struct Rank {
    WatchedRank who;
    const RankSlot* slot = nullptr;
    RankState state = RankState::none;
    std::int64_t state_ns = 0;  ///< since when
  };

  ProgressWatch(const LivenessLimits& limits, ReadStatus read_status, WhatItWaitsFor what_it_waits_for);

  /// Appends the findings. Nothing before `excused_ns` counts. False: a debugger is attached, so nothing before
  /// `now_ns` counts.
  bool look(const std::vector<Rank>& ranks, std::int64_t excused_ns, std::int64_t now_ns,
            std::vector<LivenessFinding>& findings);

 private:
  struct Memory {
    CpuMeter meter;
    std::int64_t asleep_ns = 0;  ///< when it fell asleep; 0: it is not sleeping
    Activity activity = Activity::sleeps;
    char process_state = 'S';
  };
  struct Stall {
    double seconds = 0;  ///< since the newest sign of progress
    std::int64_t newest_ns = 0, p99_ns = 0;
    bool long_phase = false, starves = false;
  };

  double soon(const Stall& stall) const;  ///< the limit for certain hangs, seconds
  std::string soon_text(const Stall& stall) const;
  double report_after(const Stall& stall) const;
  std::vector<RankView> views(const std::vector<Rank>& ranks);
  /// Ranks that have slept for hang_timeout.
  std::vector<int> sleepers(const std::vector<Rank>& ranks, std::int64_t now_ns);
  std::string report(const std::vector<Rank>& ranks, const Stall& stall, std::int64_t now_ns);

  LivenessLimits limits_;
  ReadStatus read_status_;
  WhatItWaitsFor what_it_waits_for_;
  std::map<int, Memory> memory_;  ///< by rank
  std::int64_t looked_ns_ = 0;    ///< time of the last look at the processes
  double report_at_ = 0;          ///< seconds without progress at which the next report is due; 0: the first one
  bool told_hang_ = false;
};

}  // namespace tessera::launch
