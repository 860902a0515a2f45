#pragma once
/// \file
/// The board: one piece of memory per host that the agent makes and every rank on the host maps. Each rank writes its
/// own slot (heartbeat, progress, what it is doing, its last 4,096 collectives); the agent and `tessera top` read them,
/// also after the rank has died. Torch-free.
///
/// It is a memfd: nothing in the file system, gone with its last holder. The agent passes it as TESSERA_BOARD_FD; a
/// rank that another launcher started makes one of its own with a single slot, so that `tessera top` finds it too (it
/// looks for descriptors named "memfd:tessera-board" of this user).
///
/// Every field that more than one process touches is an atomic; times are CLOCK_MONOTONIC nanoseconds, 0 = never. A
/// reader believes nothing: texts may be cut or torn, counts absurd (a rank may have died while writing, or overwritten
/// its slot in its death throes).

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

/// What a rank is doing.
enum class RankState : std::uint32_t {
  none,     ///< has not come to tessera::init() (a foreign program never does: it is watched by its pidfd only)
  joining,  ///< inside tessera::init()
  running,
  evaluating,
  saving,
  leaving,  ///< inside tessera::shutdown()
  left,     ///< done with tessera; what follows is not watched
  failed,   ///< `error` says why
  working,  ///< in a phase that may take minutes without a collective: `phase` says which (comm/long_phase.h)
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

/// The slot of one rank. The rank writes, others read.
struct alignas(64) RankSlot {
  std::atomic<std::int32_t> rank, pid;
  std::atomic<RankState> state;
  std::atomic<std::uint32_t> generation;  ///< number of the restart that wrote this slot

  std::atomic<std::int64_t> heartbeat_ns;  ///< written every 100 ms by a thread of its own
  std::atomic<std::uint64_t> progress;     ///< counts finished collectives, micro-batches and steps
  std::atomic<std::int64_t> progress_ns;   ///< when it last changed

  std::atomic<std::int64_t> step, total_steps;
  std::atomic<std::int64_t> first_step_ns;  ///< end of the first step of this generation (for restart times)
  std::atomic<std::int64_t> step_ns;        ///< duration of the last step
  std::atomic<std::int64_t> p99_step_ns;    ///< 99th percentile of the last 100 steps
  std::atomic<double> tokens_per_second, loss;
  std::atomic<std::int64_t> memory_bytes;  ///< resident set
  std::atomic<std::int64_t> cpu_ns;        ///< user + system time of the process
  std::atomic<std::int64_t> comm_ns;       ///< total time that callers were blocked in collectives
  /// What this rank waits in, as its watcher saw it: 1 + the id of an entry of the ring when every thread that starts
  /// collectives is blocked in one; 0 when it computes. And since when.
  std::atomic<std::uint64_t> blocked_in;
  std::atomic<std::int64_t> blocked_since_ns;

  std::atomic<std::int64_t> verdict_ns;  ///< when `error` was written
  std::atomic<std::int32_t>
      exit_code;     ///< with which it is going to end, written before verdict_ns; 0: it does not say
  char error[1024];  ///< why the rank fails, in its own words; ends with NUL
  char phase[32];    ///< "forward", "save checkpoint-200": for people
  char place[64];    ///< in the mesh: "dp_shard 1, tp 0"; empty: data-parallel only, or not known

  /// The groups of this rank in the order of their first use; the last row is for all that have no row of their own.
  static constexpr std::size_t totals_size = 16;
  GroupTotals totals[totals_size];

  static constexpr std::size_t ring_size = 4096;
  std::atomic<std::uint64_t> next_entry;  ///< id of the entry to be written next; entry i lies in ring[i % ring_size]
  Entry ring[ring_size];  ///< an entry is whole when its id is the expected one before and after copying
};

struct alignas(64) BoardHeader {
  char magic[8];          ///< "TESSBRD" + NUL
  std::uint32_t version;  ///< board_version
  std::uint32_t slots;
  std::uint64_t slot_bytes;               ///< sizeof(RankSlot) of the program that made it
  std::int32_t agent_pid;                 ///< 0: made by a rank itself
  std::int32_t world_size, first_rank;    ///< slot i belongs to rank first_rank + i
  std::atomic<std::uint32_t> generation;  ///< number of the running ranks; an older rank must stop
  char job[64];                           ///< for people: the program and its output folder
  std::atomic<std::uint32_t> stop;  ///< the agent asks the ranks to end (a peer failed): blocked collectives throw
  char stop_reason[1024];           ///< why, written before `stop` is set
};

constexpr std::uint32_t board_version = 4;

/// A mapping of a board. Move-only; unmapped by the destructor.
class Board {
 public:
  Board() = default;
  /// Makes one with zeroed slots. Throws InputError when there is no memory for it.
  static Board create(int slots, int first_rank, int world_size, const std::string& job);
  /// Maps what the descriptor holds (not owned; it may be closed afterwards). Throws InputError when it is not a board
  /// of this build: foreign, stale, truncated, or of another version.
  static Board open(int fd);
  ~Board();
  Board(Board&& other) noexcept;
  Board& operator=(Board&& other) noexcept;

  explicit operator bool() const { return header_ != nullptr; }
  int fd() const { return fd_.get(); }  ///< descriptor of create(); -1 after open()
  int slots() const;
  BoardHeader& header() const { return *header_; }
  RankSlot& slot(int i) const;  ///< throws Error when out of range

 private:
  UniqueFd fd_;
  BoardHeader* header_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Makes a slot what it was when the board was made. Of a rank that starts anew; nobody else may write it.
void clear(RankSlot& slot);

/// The last `count` whole entries of a slot, oldest first, checked (enumerations in range, texts ended).
std::vector<Entry> last_entries(const RankSlot& slot, std::size_t count = RankSlot::ring_size);
/// Those with ids from `first` on, as far as the ring still has them.
std::vector<Entry> entries_from(const RankSlot& slot, std::uint64_t first);
/// One of them; nullopt when it is not (or no longer, or not wholly) in the ring.
std::optional<Entry> entry_of(const RankSlot& slot, std::uint64_t id);

/// "rank 3 (pid 51)", or, with a place in a mesh, "rank 3 (dp_shard 1, tp 1; pid 51)".
std::string rank_name(int rank, pid_t pid, std::string_view place);

/// Writes a text of the board, cut to fit; always ended.
template <std::size_t N>
void write_text(char (&target)[N], std::string_view text) {
  const std::size_t length = text.copy(target, N - 1);
  target[length] = 0;
}
/// Reads one, whatever is there.
template <std::size_t N>
std::string read_text(const char (&source)[N]) {
  const std::string_view all(source, N);
  return std::string(all.substr(0, all.find('\0')));
}

}  // namespace tessera::launch
