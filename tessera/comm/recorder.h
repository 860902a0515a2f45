#pragma once
/// \file
/// The record of every collective this process started: a ring of the last ones and totals per operation. Error texts,
/// reports, comm tables and volume tests all come from here. Entries are plain bytes without pointers, so that the ring
/// can later be placed where another process reads it.

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::comm {

enum class Op : std::uint8_t {
  broadcast,
  reduce,
  all_reduce,
  scatter,
  gather,
  all_gather,
  reduce_scatter,
  all_to_all,
  send,
  recv,
  barrier
};
constexpr int op_count = 11;
const char* op_name(Op op);

enum class Status : std::uint8_t {
  started,  ///< not yet known to be finished (running, or nobody waited)
  done,
  failed,
};

/// One collective. Times are CLOCK_MONOTONIC nanoseconds.
struct Entry {
  std::uint64_t id = 0;  ///< counts all entries of this process from 0
  /// Counts from 0 per group: collectives (equal on every rank), and send/recv apart from them.
  std::uint64_t sequence = 0;
  /// Hash of op, dtype, numel, root, reduction, group: equal on every rank for a collective.
  std::uint64_t fingerprint = 0;
  std::int64_t numel = 0;          ///< elements of the larger tensor: the payload
  std::int64_t payload_bytes = 0;  ///< numel x element size of the caller's dtype
  std::int64_t wire_bytes = 0;     ///< by theory, see wire_bytes()
  std::int64_t start_ns = 0;
  std::int64_t end_ns = 0;     ///< when a wait() returned; 0 while started
  std::int64_t waited_ns = 0;  ///< time that callers spent blocked in start and wait()
  std::int32_t group_size = 1;
  std::int32_t peer = -1;  ///< root, destination or source; -1 when there is none
  Op op = Op::barrier;
  Status status = Status::started;
  char reduction[8] = {};  ///< "sum", ...; empty when there is none
  char dtype[16] = {};     ///< "float32", ...; empty for a barrier
  char group[32] = {};     ///< the group's name, cut to 31 bytes
  char tag[32] = {};       ///< the caller's Tag, cut to 31 bytes
};

/// Bytes that the busiest rank must at least send (the "bus bytes" of nccl-tests), R = group size, S = payload bytes:
/// all_reduce 2 S (R-1)/R; all_gather, reduce_scatter, scatter, gather, all_to_all S (R-1)/R; broadcast, reduce, send,
/// recv S; barrier 0. One rank: 0.
std::int64_t wire_bytes(Op op, std::int64_t payload_bytes, int group_size);

/// "all_reduce #12 of group 'world' (4 ranks, 1024 x float32, sum, tag 'bucket 3')".
std::string describe(const Entry& entry);

struct OpTotals {
  Op op;
  std::uint64_t count = 0;  ///< started
  std::int64_t payload_bytes = 0;
  std::int64_t wire_bytes = 0;
  double seconds_waited = 0;  ///< time that callers spent blocked
};

/// Thread-safe.
class Recorder {
 public:
  static constexpr std::size_t capacity = 4096;

  /// Stores the entry (id and start_ns are filled in); returns its id.
  std::uint64_t begin(Entry entry);
  /// Adds blocked time and sets the status. Finishing an entry that left the ring only counts in the totals.
  void finish(std::uint64_t id, Op op, Status status, std::int64_t waited_ns);
  /// The last `count` entries, oldest first.
  std::vector<Entry> last(std::size_t count = capacity) const;
  /// One row per operation that was used, in the order of Op.
  std::vector<OpTotals> totals() const;
  /// True once a collective of this process failed.
  bool any_failed() const;
  /// Forgets everything (a new World).
  void clear();

 private:
  mutable std::mutex mutex_;
  std::vector<Entry> ring_;
  std::uint64_t next_id_ = 0;
  OpTotals totals_[op_count] = {};
  bool failed_ = false;
};

/// The record of this process; part of the World, usable before init() as well.
Recorder& recorder();

/// Names what the collectives started by this thread belong to, while it lives. Nests; the innermost is recorded.
class Tag {
 public:
  explicit Tag(std::string text);
  ~Tag();
  Tag(const Tag&) = delete;
  Tag& operator=(const Tag&) = delete;
  /// The innermost tag of this thread, or "".
  static const std::string& current();

 private:
  std::string text_;
  const Tag* outer_;
};

std::int64_t monotonic_ns();

}  // namespace tessera::comm
