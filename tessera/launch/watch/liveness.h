#pragma once
/// \file
/// launch/watch/: determines whether every rank is alive and the job makes progress. Reads the board (board.h) and
/// /proc ten times a second, using the monotonic clock. It only judges; the agent acts on the findings (generation.h).
///
/// There is one rule, given as a table in docs/launching.md and tested as that table
/// (tests/launch/liveness_table_test.cpp): a rank that is stopped by a signal, and one that can never leave a
/// collective, is terminated within seconds; a rank that computes, waits for a disk, or is in a declared long phase is
/// reported; a rank that merely sleeps outside of collectives while nothing progresses is reported, and ended after
/// hang_timeout.
///
/// This file covers the ranks' heartbeats: stopped, paused, missing. progress.h covers the rest.
///
/// A process that a signal has stopped is reported after told_pause and ended after heartbeat_timeout, whatever it was
/// doing: also before it has reached tessera::init(), and after it has left. Other pauses are reported once they are
/// over. A busy machine is not the rank's fault: while its threads wait for a processor for at least half of the time,
/// neither its pause nor its missing heartbeat is reported.
///
/// A rank under a debugger is never judged. When the agent itself did not run for a second (the machine was suspended),
/// all clocks restart.

#include <tessera/launch/watch/progress.h>

#include <vector>

namespace tessera::launch {

class LivenessWatch {
 public:
  explicit LivenessWatch(const LivenessLimits& limits, ReadStatus read_status = read_proc_status,
                         WhatItWaitsFor what_it_waits_for = launch::what_it_waits_for);

  /// `ranks`: all ranks of this host, including ranks whose processes have exited. `now_ns`: monotonic_ns(). Slots of
  /// another generation are ignored. A frozen rank or a hang is reported once, until a heartbeat or progress is seen
  /// again.
  std::vector<LivenessFinding> look(const Board& board, std::uint32_t generation, const std::vector<WatchedRank>& ranks,
                                    std::int64_t now_ns);

 private:
  struct Memory {
    std::int64_t heartbeat_ns = 0;
    RankState state = RankState::none;
    std::int64_t state_ns = 0;                        ///< when `state` was first seen
    char status_in_pause = 0;                         ///< process state during the current pause
    std::int64_t pause_seen_ns = 0, cpu_wait_ns = 0;  ///< when the pause was first noticed, and ProcStatus::cpu_wait_ns
                                                      ///< at that time
    bool told_stopped = false, told_silent = false, told_frozen = false;
    std::int64_t looked_ns = 0,
                 stopped_ns = 0;  ///< for a process without a heartbeat: last check of the process; when it was stopped
  };

  void look_at_heart(const RankSlot& slot, const WatchedRank& rank, Memory& memory, std::int64_t now_ns,
                     std::vector<LivenessFinding>& findings);
  void look_at_process(const RankSlot& slot, const WatchedRank& rank, Memory& memory, std::int64_t now_ns,
                       std::vector<LivenessFinding>& findings);
  void judge_silence(const std::string& name, char state, double age, const std::string& how_long,
                     const WatchedRank& rank, Memory& memory, std::vector<LivenessFinding>& findings) const;
  bool merely_waits_for_cpu(const Memory& memory, const ProcStatus& status, std::int64_t now_ns) const;

  LivenessLimits limits_;
  ReadStatus read_status_;
  ProgressWatch progress_;
  std::vector<Memory> memory_;  ///< by slot
  std::int64_t last_look_ns_ = 0;
  std::int64_t excused_ns_ = 0;  ///< nothing before this counts: the agent was suspended, or a debugger was attached
};

}  // namespace tessera::launch
