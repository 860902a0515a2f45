#pragma once
/// \file
/// Does the job get on? When no rank finishes a collective, a micro-batch, a step or a piece of a long phase, each one
/// is looked at (activity.h), and the table of docs/launching.md says whether it is reported or ended:
///
/// Ended after max(5 s, 5 x p99 step), before a step is known after 30 s: ranks that can never leave a collective,
/// because all peers have passed it, have left, or wait in a circle (wait_graph.h). A given hang_timeout is the limit
/// if it is shorter; four times the limit while a rank that wants to run gets less than a quarter of a processor.
///
/// Ended after hang_timeout (300 s): one that sleeps outside of collectives and of phases that it declares long; all
/// ranks that have come to one collective and sleep there. A second in which it burns at least 5 % of a processor or is
/// seen in state D begins the time anew, and so does a sign of progress of any rank.
///
/// Reported, and never ended: one that computes, waits for a disk or is in a phase that it declares long. The first
/// line comes after max(5 s, 5 x p99 step), before a step is known after 30 s, in a declared phase after 60 s; the
/// next ones after twice the time each.
///
/// Not judged: while a rank joins (the rendezvous lists who is missing). hang_timeout < 0: nothing is looked for.

#include <tessera/launch/watch/activity.h>
#include <tessera/launch/watch/finding.h>
#include <tessera/launch/watch/wait_graph.h>
#include <tessera/launch/watch/waiting.h>

#include <map>
#include <vector>

namespace tessera::launch {

class ProgressWatch {
 public:
  /// A rank of this generation that has come to the board.
  struct Rank {
    WatchedRank who;
    const RankSlot* slot = nullptr;
    RankState state = RankState::none;
    std::int64_t state_ns = 0;  ///< since when
  };

  ProgressWatch(const LivenessLimits& limits, ReadStatus read_status, WhatItWaitsFor what_it_waits_for);

  /// Adds what is found. Nothing before `excused_ns` counts. False: a debugger is attached, so nothing before now does.
  bool look(const std::vector<Rank>& ranks, std::int64_t excused_ns, std::int64_t now_ns,
            std::vector<LivenessFinding>& findings);

 private:
  struct Memory {
    CpuMeter meter;
    std::int64_t asleep_ns = 0;  ///< since when it sleeps; 0: it does not
    Activity activity = Activity::sleeps;
    char process_state = 'S';
  };
  struct Stall {
    double seconds = 0;  ///< since the newest sign of progress
    std::int64_t newest_ns = 0, p99_ns = 0;
    bool long_phase = false, starves = false;
  };

  double soon(const Stall& stall) const;  ///< the limit of certain hangs
  std::string soon_text(const Stall& stall) const;
  double report_after(const Stall& stall) const;
  std::vector<RankView> views(const std::vector<Rank>& ranks);
  /// Whoever has slept for hang_timeout.
  std::vector<int> sleepers(const std::vector<Rank>& ranks, std::int64_t now_ns);
  std::string report(const std::vector<Rank>& ranks, const Stall& stall, std::int64_t now_ns);

  LivenessLimits limits_;
  ReadStatus read_status_;
  WhatItWaitsFor what_it_waits_for_;
  std::map<int, Memory> memory_;  ///< by rank
  std::int64_t looked_ns_ = 0;    ///< last look at the processes
  double report_at_ = 0;          ///< seconds without progress at which the next report is due; 0: the first one
  bool told_hang_ = false;
};

}  // namespace tessera::launch
