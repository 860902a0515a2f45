#pragma once
/// \file
/// A snapshot of the running jobs for `tessera top`: plain values, read from the boards (launch/agent/board.h) and from
/// /proc, with sanitized texts.

#include <tessera/launch/agent/board.h>

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace tessera::tool {

/// State of a rank's process, according to the kernel and its heartbeat.
enum class Pulse {
  starting,  ///< no process id on the board yet
  beating,
  frozen,  ///< stopped by a signal, or no heartbeat for 3 s although it lives
  dead,    ///< exited without having reported it
  gone,    ///< exited after RankState::left
};

/// A rank's time and traffic in the collectives of one mesh axis, or of one group that belongs to no axis.
struct AxisView {
  std::string axis;  ///< "tp"
  std::int64_t waited_ns = 0, moved_bytes = 0;
  double share = -1;  ///< as RankView::comm_share
};

struct RankView {
  int rank = 0;
  pid_t pid = 0;
  Pulse pulse = Pulse::starting;
  bool stopped = false;  ///< stopped by a signal (SIGSTOP), or traced
  launch::RankState state = launch::RankState::none;
  std::string phase, error;
  std::string place;  ///< position in the mesh: "dp_shard 0, tp 1"; may be empty
  std::int64_t step = 0, total_steps = 0;
  double step_seconds = 0;
  double tokens_per_second = 0, loss = 0;
  std::int64_t memory_bytes = 0;
  double heartbeat_age = -1;  ///< seconds; -1: never
  double cpu_share = -1,
         comm_share = -1;  ///< share of the time since the previous snapshot, or since the process started; -1: unknown
  std::int64_t cpu_ns = 0, comm_ns = 0;
  std::vector<AxisView> axes;   ///< in the order of their first use
  std::string last_collective;  ///< empty: none
  bool collective_runs = false;
  double collective_age = 0;  ///< seconds since it ended or, if it is running, since it began
};

struct JobView {
  std::string name;            ///< program and output folder, for users
  pid_t agent_pid = 0;         ///< 0: ranks of another launcher
  bool agent_stopped = false;  ///< suspended by a signal, or traced: nobody watches the ranks
  unsigned generation = 0;
  int world_size = 0;
  double seconds = -1;          ///< seconds since its agent (or oldest rank) started; -1: unknown
  std::string stop_reason;      ///< why the agent is ending the job; empty: it is not
  std::vector<RankView> ranks;  ///< ranks of this host, ascending
};

struct Snapshot {
  std::int64_t time_ns = 0;
  std::vector<JobView> jobs;  ///< by agent_pid
};

/// Boards stay mapped between snapshots, so that a refresh costs little.
class BoardWatcher {
 public:
  /// Reads the boards held by processes of this user, found in /proc; `pid`: only the job of that agent or rank (0:
  /// all). `look`: false reads only the known boards, which is much cheaper than searching /proc.
  Snapshot take(pid_t pid = 0, bool look = true);

 private:
  struct Held {
    launch::Board board;
    int slots;
    std::vector<pid_t> holders;
  };
  struct Former {
    std::int64_t time_ns, cpu_ns, comm_ns;
    std::map<std::string, std::int64_t> waited_ns;  ///< by axis
  };

  void find();

  std::map<std::uint64_t, Held> boards_;                    // by inode
  std::map<std::pair<std::uint64_t, int>, Former> former_;  // by inode and slot
};

/// Sanitizes foreign text for a terminal: control characters and ill-formed UTF-8 become '?'.
std::string harmless(std::string text);

}  // namespace tessera::tool
