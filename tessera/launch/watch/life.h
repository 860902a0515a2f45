#pragma once
/// \file
/// launch/watch/: is every rank alive, and does the job get on? Judged from the board (board.h) on the monotonic clock,
/// ten times a second. Judgement only: what happens then is the agent's business (generation.h).
///
/// Frozen: no heartbeat for heartbeat_timeout while the kernel says that the process is stopped or sleeps; twice that
/// when it waits for a disk, four times when it runs. A process that a signal has stopped is named after told_pause
/// already; other pauses are told when they are over. A busy machine is no fault of the rank: while its threads wait
/// for a processor for at least half of the time, it is neither frozen nor is its pause told.
///
/// Hang: the heart beats, but no rank has made progress for max(5 s, 5 x p99 step); before a step is known, 30 s when
/// all ranks are idle and 10 min when one computes (the first step of a large model, a program without steps). Four
/// times as long, unless the limit was given, while a rank that wants to run gets less than a quarter of a processor.
///
/// Never judged: a rank under a debugger, one that has not come to tessera::init() or has left; a hang while a rank
/// joins (the rendezvous lists who is missing) or saves. Evaluation has at least a minute. When the agent itself did
/// not run for a second (the machine was suspended), all clocks begin anew.

#include <tessera/launch/agent/board.h>
#include <tessera/launch/watch/proc_status.h>

#include <functional>
#include <string>
#include <vector>

namespace tessera::launch {

struct LifeLimits {
  double heartbeat_timeout = 2.5;  ///< seconds; 0: frozen ranks are not looked for
  double hang_timeout = 0;         ///< seconds; 0: as above; < 0: hangs are not looked for
  double told_pause = 1;           ///< pauses from this on are told
};

/// A rank that runs: its slot on the board and its process.
struct WatchedRank {
  int rank = 0;
  int slot = 0;
  pid_t pid = 0;
};

struct LifeFinding {
  enum Kind { stopped, paused, frozen, hang } kind = paused;
  std::vector<int> ranks;  ///< the stopped, paused or frozen one; empty for a hang (wait_graph.h finds whom to blame)
  std::string text;        ///< for people: "rank 2 (pid 7) is frozen: no heartbeat for 2.6 s, process state T (...)"
  double seconds = 0;      ///< without a heartbeat, or without progress
};

class LifeWatch {
 public:
  using ReadStatus = std::function<std::optional<ProcStatus>(pid_t)>;
  explicit LifeWatch(const LifeLimits& limits, ReadStatus read_status = read_proc_status);

  /// `now_ns`: monotonic_ns(). Slots of another generation are not looked at. A frozen rank and a hang are found once,
  /// until the heartbeat or the progress is seen again.
  std::vector<LifeFinding> look(const Board& board, std::uint32_t generation, const std::vector<WatchedRank>& ranks,
                                std::int64_t now_ns);

 private:
  struct Memory {
    std::int64_t heartbeat_ns = 0;
    RankState state = RankState::none;
    std::int64_t state_ns = 0;                        ///< when `state` was first seen
    char status_in_pause = 0;                         ///< state of the process, while a pause lasted
    std::int64_t pause_seen_ns = 0, cpu_wait_ns = 0;  ///< when the pause was first looked at, ProcStatus of then
    bool told_stopped = false, told_frozen = false;
    std::int64_t cpu_ticks = 0, cpu_since_ns = 0;  ///< for "idle"
    bool idle = true, starved = false;
  };

  void look_at_heart(const RankSlot& slot, const WatchedRank& rank, Memory& memory, std::int64_t now_ns,
                     std::vector<LifeFinding>& findings);
  bool merely_waits_for_cpu(const Memory& memory, const ProcStatus& status, std::int64_t now_ns) const;
  void look_at_progress(const Board& board, const std::vector<WatchedRank>& ranks, std::int64_t now_ns,
                        std::vector<LifeFinding>& findings);

  LifeLimits limits_;
  ReadStatus read_status_;
  std::vector<Memory> memory_;  ///< by slot
  std::int64_t last_look_ns_ = 0;
  std::int64_t excused_ns_ = 0;  ///< nothing before this counts: the agent slept, or a debugger was attached
  bool told_hang_ = false;
};

}  // namespace tessera::launch
