#pragma once
/// \file
/// The record of every collective a process started: a ring of the last ones, and totals per group and operation.
/// Error texts, reports, comm tables and volume tests all come from here. Both lie in a rank's slot of the board
/// (launch/agent/board.h), where the launcher's agent and `tessera top` read them, also after the process has died.

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
  std::string group = {};   ///< its name; "other groups" after RankSlot::totals_size - 1 of them
  std::uint64_t count = 0;  ///< started
  std::int64_t payload_bytes = 0;
  std::int64_t wire_bytes = 0;   ///< by theory
  std::int64_t moved_bytes = 0;  ///< what the backends really moved (wire_bytes where they do not say)
  double seconds_waited = 0;     ///< time that callers spent blocked
  /// Time from the start until wait() returned, of those that ended: 1 - waited / in flight was hidden under computing.
  double seconds_in_flight = 0;
};

/// Thread-safe, without locks; begin() and finish() together cost some 0.3 us.
class Recorder {
 public:
  static constexpr std::size_t capacity = launch::RankSlot::ring_size;

  Recorder();  ///< writes into memory of its own
  explicit Recorder(launch::RankSlot& slot);
  Recorder(const Recorder&) = delete;
  Recorder& operator=(const Recorder&) = delete;

  /// Writes to this slot from now on, which outlives the recorder. While no collective is in flight.
  void attach(launch::RankSlot& slot);

  /// Stores the entry; fills in its id and row, and start_ns if it is 0.
  void begin(Entry& entry);
  /// The caller was blocked for a while; the end is still to come. `entry`: as begin() left it, here and below.
  void blocked(const Entry& entry, std::int64_t waited_ns);
  /// Adds blocked time and sets the status. Finishing an entry that left the ring only counts in the totals.
  void finish(const Entry& entry, Status status, std::int64_t waited_ns, std::int64_t in_flight_ns = 0);
  /// `bytes` were moved where theory says entry.wire_bytes.
  void moved(const Entry& entry, std::int64_t bytes);

  /// The last `count` entries, oldest first.
  std::vector<Entry> last(std::size_t count = capacity) const;
  /// One row per group and operation that was used: groups in the order of their first use, then in the order of Op.
  std::vector<OpTotals> totals() const;
  /// Sum of seconds_waited over all of them.
  double seconds_waited() const;
  /// True once a collective of this process failed.
  bool any_failed() const { return failed_.load(std::memory_order_relaxed); }
  /// Forgets everything (a new World).
  void clear();

 private:
  Entry* find(std::uint64_t id) const;  // nullptr when it left the ring
  std::uint8_t row_of(const char (&group)[sizeof Entry::group]) const;
  launch::GroupTotals::Sums& sums_of(const Entry& entry) const;

  std::unique_ptr<launch::RankSlot> own_;
  launch::RankSlot* slot_;
  std::atomic<bool> failed_{false};
};

}  // namespace tessera::wire
