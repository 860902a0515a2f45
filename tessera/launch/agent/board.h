#pragma once
/// \file
/// The board: shared memory, one per host, which the agent creates and every rank on the host maps. Each rank writes
/// its own slot (heartbeat, progress, current activity, last 4,096 collectives); the agent and `tessera top` read the
/// slots, even after the rank has died. Torch-free.
///
/// It is a memfd: it has no file system entry and disappears when its last holder closes it. The agent passes it as
/// TESSERA_BOARD_FD. A rank that another launcher started creates its own with a single slot, so that `tessera top`
/// finds it too (by looking for descriptors of this user named "memfd:tessera-board").
///
/// Every field that several processes touch is atomic; times are CLOCK_MONOTONIC nanoseconds, 0 = never. Readers must
/// not trust the contents: texts can be truncated or torn, and counts can be absurd, because a rank may have died while
/// writing or corrupted its slot in a crash.

#include <tessera/launch/agent/unique_fd.h>
#include <tessera/launch/watch/record.h>

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace tessera::launch {

/// The current activity of a rank.
enum class RankState : std::uint32_t {
  none,     ///< has not reached tessera::init() (a foreign program never does: it is watched by its pidfd only)
  joining,  ///< inside tessera::init()
  running,
  evaluating,
  saving,
  leaving,  ///< inside tessera::shutdown()
  left,     ///< finished with tessera; the process is not watched from here on
  failed,   ///< the reason is in `error`
  working,  ///< in a phase that can take minutes without a collective; its name is in `phase` (comm/long_phase.h)
};
constexpr RankState last_rank_state = RankState::working;
const char* state_name(RankState state);

/// Sums over the collectives of one group (comm/recorder.h writes them).
struct GroupTotals {
  enum State : std::uint32_t { unused, being_named, named };
  struct Sums {
    std::atomic<std::uint64_t> count;  ///< started
    std::atomic<std::int64_t> payload_bytes, wire_bytes, moved_bytes, waited_ns, in_flight_ns;
  };
  std::atomic<State> state;
  char group[32];  ///< as Entry::group
  Sums sums[op_count];
};

/// The slot of one rank. Only the rank writes it; others read it.
struct alignas(64) RankSlot {
  std::atomic<std::int32_t> rank, pid;
  std::atomic<RankState> state;
  std::atomic<std::uint32_t> generation;  ///< generation of the rank that wrote this slot

  std::atomic<std::int64_t> heartbeat_ns;  ///< written every 100 ms by a dedicated thread
  std::atomic<std::uint64_t> progress;     ///< counts finished collectives, micro-batches and steps
  std::atomic<std::int64_t> progress_ns;   ///< time of the last change

  std::atomic<std::int64_t> step, total_steps;
  std::atomic<std::int64_t> first_step_ns;  ///< end of the first step of this generation (for restart times)
  std::atomic<std::int64_t> step_ns;        ///< duration of the last step
  std::atomic<std::int64_t> p99_step_ns;    ///< 99th percentile of the last 100 steps
  std::atomic<double> tokens_per_second, loss;
  std::atomic<std::int64_t> memory_bytes;  ///< resident set
  std::atomic<std::int64_t> cpu_ns;        ///< user + system time of the process
  std::atomic<std::int64_t> comm_ns;       ///< total time that callers were blocked in collectives
  /// The collective in which this rank is blocked, as seen by its watcher: 1 + the id of its ring entry if every thread
  /// that starts collectives is blocked in one; 0 while the rank computes. `blocked_since_ns`: when that began.
  std::atomic<std::uint64_t> blocked_in;
  std::atomic<std::int64_t> blocked_since_ns;

  std::atomic<std::int64_t> verdict_ns;  ///< time at which `error` was written
  std::atomic<std::int32_t> exit_code;   ///< exit code the rank will return, written before verdict_ns; 0: unknown
  char error[1024];                      ///< the rank's own error text; NUL-terminated
  char phase[32];                        ///< "forward", "save checkpoint-200"; shown to users
  char place[64];  ///< position in the mesh: "dp_shard 1, tp 0"; empty: data-parallel only, or unknown

  /// The groups of this rank in the order of their first use; all groups beyond the table share the last row.
  static constexpr std::size_t totals_size = 16;
  GroupTotals totals[totals_size];

  static constexpr std::size_t ring_size = 4096;
  std::atomic<std::uint64_t> next_entry;  ///< id of the next entry; entry i is stored in ring[i % ring_size]
  Entry ring[ring_size];  ///< an entry is intact when its id is the expected one both before and after copying
};

struct alignas(64) BoardHeader {
  char magic[8];          ///< "TESSBRD" + NUL
  std::uint32_t version;  ///< board_version
  std::uint32_t slots;
  std::uint64_t slot_bytes;               ///< sizeof(RankSlot) in the program that created the board
  std::int32_t agent_pid;                 ///< 0: created by a rank itself
  std::int32_t world_size, first_rank;    ///< slot i belongs to rank first_rank + i
  std::atomic<std::uint32_t> generation;  ///< generation of the running ranks; a rank of an older generation must stop
  char job[64];                           ///< shown to users: the program and its output folder
  std::atomic<std::uint32_t> stop;  ///< the agent asks the ranks to exit (a peer failed): blocked collectives throw
  char stop_reason[1024];           ///< the reason, written before `stop` is set
};

constexpr std::uint32_t board_version = 4;

/// A mapping of a board. Move-only; unmapped by the destructor.
class Board {
 public:
  Board() = default;
  /// Creates a board with zeroed slots. Throws InputError when there is not enough memory.
  static Board create(int slots, int first_rank, int world_size, const std::string& job);
  /// Maps the descriptor's memory (does not take ownership of the descriptor, which may be closed afterwards). Throws
  /// InputError when it is not a board of this build: foreign, stale, truncated, or another version.
  static Board open(int fd);
  ~Board();
  Board(Board&& other) noexcept;
  Board& operator=(Board&& other) noexcept;

  explicit operator bool() const { return header_ != nullptr; }
  int fd() const { return fd_.get(); }  ///< descriptor of create(); -1 after open()
  int slots() const;
  BoardHeader& header() const { return *header_; }
  RankSlot& slot(int i) const;  ///< throws Error if out of range

 private:
  UniqueFd fd_;
  BoardHeader* header_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Resets a slot to its initial state. Only the rank that owns the slot may call it, when it starts.
void clear(RankSlot& slot);

/// Returns the last `count` intact entries of a slot, oldest first, validated (enumerations in range, texts
/// terminated).
std::vector<Entry> last_entries(const RankSlot& slot, std::size_t count = RankSlot::ring_size);
/// Returns the entries with ids from `first` on that are still in the ring.
std::vector<Entry> entries_from(const RankSlot& slot, std::uint64_t first);
/// Returns one entry; nullopt when it is not in the ring, was overwritten, or is torn.
std::optional<Entry> entry_of(const RankSlot& slot, std::uint64_t id);

/// "rank 3 (pid 51)", or, with a place in a mesh, "rank 3 (dp_shard 1, tp 1; pid 51)".
std::string rank_name(int rank, pid_t pid, std::string_view place);

/// Writes a text to the board, truncated to fit and always NUL-terminated.
template <std::size_t N>
void write_text(char (&target)[N], std::string_view text) {
  const std::size_t length = text.copy(target, N - 1);
  target[length] = 0;
}
/// Reads a text of the board, terminated or not.
template <std::size_t N>
std::string read_text(const char (&source)[N]) {
  const std::string_view all(source, N);
  return std::string(all.substr(0, all.find('\0')));
}

}  // namespace tessera::launch
