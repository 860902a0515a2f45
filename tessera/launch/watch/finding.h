#pragma once
/// \file
/// The watched ranks of one host, the limits, and the possible findings (liveness.h, progress.h).

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
  double heartbeat_timeout = 2.5;  ///< seconds before a stopped rank is terminated; 0: never
  double hang_timeout = 0;         ///< seconds that a rank may sleep while nothing progresses; 0: 300 s; < 0: unlimited
  double told_pause = 1;           ///< seconds; pauses of at least this length are reported

  double sleep_limit() const { return hang_timeout == 0 ? 300 : hang_timeout; }
};

/// A rank of this host: its slot on the board and its process.
struct WatchedRank {
  int rank = 0;
  int slot = 0;
  pid_t pid = 0;
  bool ended = false;  ///< the process has exited: it will do nothing more
};

struct LivenessFinding {
  enum Kind {
    stopped,  ///< stopped by a signal: will be ended
    paused,   ///< the rank was paused for a while, and continues
    report,   ///< no progress, with the ranks responsible; none is terminated
    frozen,   ///< to be ended
    hang,     ///< the job must be ended
  } kind = paused;
  std::vector<int> ranks;  ///< the ranks concerned; for a hang see also wait_graph.h
  std::string text;        ///< for users: "rank 2 (pid 7) is frozen: no heartbeat for 2.6 s, process state T (...)"
  double seconds = 0;      ///< seconds without a heartbeat, or without progress
};

using ReadStatus = std::function<std::optional<ProcStatus>(pid_t)>;

/// Whether the state is a declared long phase, which may take minutes without a collective (comm/long_phase.h).
bool is_long_phase(RankState state);

}  // namespace tessera::launch
