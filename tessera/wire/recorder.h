#pragma once
/// \file
/// The record of the collectives that a process started: a ring of recent ones, and totals per group and operation.
/// Error texts, reports, communication tables and volume tests are based on it. Both are stored in a rank's slot of the
/// board (launch/agent/board.h), where the launcher's agent and `tessera top` can read them even after the process has
/// died.

#include <tessera/launch/agent/board.h>
#include <tessera/launch/watch/record.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace tessera::wire {

using launch::axis_of;
using launch::describe;
using launch::Entry;
using launch::Op;
using launch::op_count;
using launch::op_name;
using launch::Status;
using launch::wire_bytes;

struct OpTotals {
  Op op;
  std::string group = {};   ///< the group's name; "other groups" after RankSlot::totals_size - 1 groups
  std::uint64_t count = 0;  ///< started
  std::int64_t payload_bytes = 0;
  std::int64_t wire_bytes = 0;   ///< by theory
  std::int64_t moved_bytes = 0;  ///< bytes actually moved, as reported by the backends (else wire_bytes)
  double seconds_waited = 0;     ///< time that callers spent blocked
  /// Time from the start until wait() returned, over completed collectives. The share that was overlapped with
  /// computation is 1 - waited / in flight.
  double seconds_in_flight = 0;
};

/// Thread-safe and lock-free; begin() and finish() together cost about 0.3 us.
class Recorder {
 public:
  static constexpr std::size_t capacity = launch::RankSlot::ring_size;

  Recorder();  ///< writes to private memory
  explicit Recorder(launch::RankSlot& slot);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Switches to this slot, which must outlive the recorder. No collective may be in flight.
  void attach(launch::RankSlot& slot);

  /// Stores the entry; fills in its id and row, and start_ns if it is 0.
  void begin(Entry& entry);
  /// Adds time for which the caller was blocked before the end. `entry`, here and below: as filled in by begin().
  void blocked(const Entry& entry, std::int64_t waited_ns);
  /// Adds blocked time and sets the status. An entry that has left the ring is counted only in the totals.
  void finish(const Entry& entry, Status status, std::int64_t waited_ns, std::int64_t in_flight_ns = 0);
  /// Records that `bytes` were moved instead of entry.wire_bytes.
  void moved(const Entry& entry, std::int64_t bytes);

  /// The last `count` entries, oldest first.
  std::vector<Entry> last(std::size_t count = capacity) const;
  /// One row per group and operation in use: groups by first use, then in the order of Op.
  std::vector<OpTotals> totals() const;
  /// Sum of seconds_waited over all rows.
  double seconds_waited() const;
  /// True once a collective of this process failed.
  bool any_failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Forgets everything; used for a new World.
  void clear();

 private:
  Entry* find(std::uint64_t id) const;  // nullptr if it has left the ring
  std::uint8_t row_of(const char (&group)[sizeof Entry::group]) const;
  launch::GroupTotals::Sums& sums_of(const Entry& entry) const;

  std::unique_ptr<launch::RankSlot> own_;
  launch::RankSlot* slot_;
  std::atomic<bool> failed_{false};
};

}  // namespace tessera::wire
