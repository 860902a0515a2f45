#pragma once
/// \file
/// The record of every collective this process started: a ring of the last ones and totals per operation. Error texts,
/// reports, comm tables and volume tests all come from here. Entries are plain bytes without pointers, so that the ring
/// can later be placed where another process reads it.

#include <tessera/launch/board.h>
#include <tessera/launch/record.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace tessera::comm {

using launch::describe;
using launch::Entry;
using launch::Op;
using launch::op_count;
using launch::op_name;
using launch::Status;
using launch::wire_bytes;

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

using launch::monotonic_ns;

}  // namespace tessera::comm
