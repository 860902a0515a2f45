#pragma once
/// \file
/// What is watched of the ranks of one host, by which limits, and what can be found (liveness.h, progress.h).

#include <tessera/launch/agent/board.h>
#include <tessera/launch/watch/proc_status.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace tessera::launch {

constexpr std::int64_t second_ns = 1'000'000'000;
inline double in_seconds(std::int64_t ns) { return static_cast<double>(ns) * 1e-9; }

struct LivenessLimits {
  double heartbeat_timeout = 2.5;  ///< seconds that a stopped rank is waited for; 0: for ever
  double hang_timeout = 0;         ///< seconds that a rank may sleep while nothing gets on; 0: 300; < 0: for ever
  double told_pause = 1;           ///< pauses from this on are told

  double sleep_limit() const { return hang_timeout == 0 ? 300 : hang_timeout; }
};

/// A rank of this host: its slot on the board and its process.
struct WatchedRank {
  int rank = 0;
  int slot = 0;
  pid_t pid = 0;
  bool ended = false;  ///< the process has ended: nothing more will come of it
};

struct LivenessFinding {
  enum Kind {
    stopped,  ///< by a signal: will be ended
    paused,   ///< it was away for a while, and goes on
    report,   ///< nothing gets on, and who is at it: nobody is ended
    frozen,   ///< to be ended
    hang,     ///< the job is to be ended
  } kind = paused;
  std::vector<int> ranks;  ///< whom it is about; a hang: see wait_graph.h, too
  std::string text;        ///< for people: "rank 2 (pid 7) is frozen: no heartbeat for 2.6 s, process state T (...)"
  double seconds = 0;      ///< without a heartbeat, or without progress
};

using ReadStatus = std::function<std::optional<ProcStatus>(pid_t)>;

/// A phase that a rank declares long: it may take minutes without a collective (comm/long_phase.h).
bool is_long_phase(RankState state);

}  // namespace tessera::launch
