#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>

#include <time.h>

#include <algorithm>

namespace tessera::comm {

const char* op_name(Op op) {
  static constexpr const char* names[op_count] = {"broadcast", "reduce",     "all_reduce",     "scatter",
                                                  "gather",    "all_gather", "reduce_scatter", "all_to_all",
                                                  "send",      "recv",       "barrier"};
  return names[static_cast<int>(op)];
}

std::int64_t wire_bytes(Op op, std::int64_t payload_bytes, int group_size) {
  if (group_size <= 1) return 0;
  const double share = static_cast<double>(group_size - 1) / group_size;
  switch (op) {
    case Op::all_reduce:
      return static_cast<std::int64_t>(2 * share * static_cast<double>(payload_bytes));
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::scatter:
    case Op::gather:
    case Op::all_to_all:
      return static_cast<std::int64_t>(share * static_cast<double>(payload_bytes));
    case Op::broadcast:
    case Op::reduce:
    case Op::send:
    case Op::recv:
      return payload_bytes;
    case Op::barrier:
      return 0;
  }
  return 0;
}

std::string describe(const Entry& entry) {
  std::string text = concat(op_name(entry.op), " #", entry.sequence, " of group '", entry.group, "' (",
                            entry.group_size, entry.group_size == 1 ? " rank" : " ranks");
  if (entry.dtype[0] != 0) text += concat(", ", entry.numel, " x ", entry.dtype);
  if (entry.reduction[0] != 0) text += concat(", ", entry.reduction);
  if (entry.peer >= 0) {
    const char* role = entry.op == Op::send ? ", to rank " : entry.op == Op::recv ? ", from rank " : ", root ";
    text += concat(role, entry.peer);
  }
  if (entry.tag[0] != 0) text += concat(", tag '", entry.tag, "'");
  return text + ")";
}

std::uint64_t Recorder::begin(Entry entry) {
  entry.start_ns = monotonic_ns();
  const std::lock_guard lock(mutex_);
  entry.id = next_id_++;
  if (ring_.size() < capacity) {
    ring_.push_back(entry);
  } else {
    ring_[entry.id % capacity] = entry;
  }
  OpTotals& total = totals_[static_cast<int>(entry.op)];
  ++total.count;
  total.payload_bytes += entry.payload_bytes;
  total.wire_bytes += entry.wire_bytes;
  return entry.id;
}

void Recorder::finish(std::uint64_t id, Op op, Status status, std::int64_t waited_ns) {
  const std::int64_t now = monotonic_ns();
  const std::lock_guard lock(mutex_);
  totals_[static_cast<int>(op)].seconds_waited += static_cast<double>(waited_ns) * 1e-9;
  failed_ = failed_ || status == Status::failed;
  if (ring_.empty()) return;
  Entry& entry = ring_[id % capacity % ring_.size()];
  if (entry.id != id) return;  // overwritten by a newer one
  entry.status = status;
  entry.waited_ns += waited_ns;
  entry.end_ns = now;
}

std::vector<Entry> Recorder::last(std::size_t count) const {
  const std::lock_guard lock(mutex_);
  count = std::min(count, ring_.size());
  std::vector<Entry> entries;
  entries.reserve(count);
  for (std::uint64_t id = next_id_ - count; id < next_id_; ++id) entries.push_back(ring_[id % capacity]);
  return entries;
}

std::vector<OpTotals> Recorder::totals() const {
  const std::lock_guard lock(mutex_);
  std::vector<OpTotals> rows;
  for (int i = 0; i < op_count; ++i) {
    if (totals_[i].count == 0) continue;
    rows.push_back(totals_[i]);
    rows.back().op = static_cast<Op>(i);
  }
  return rows;
}

bool Recorder::any_failed() const {
  const std::lock_guard lock(mutex_);
  return failed_;
}

void Recorder::clear() {
  const std::lock_guard lock(mutex_);
  ring_.clear();
  next_id_ = 0;
  for (OpTotals& total : totals_) total = OpTotals{};
  failed_ = false;
}

namespace {
thread_local const Tag* innermost = nullptr;
}  // namespace

Tag::Tag(std::string text) : text_(std::move(text)), outer_(innermost) { innermost = this; }
Tag::~Tag() { innermost = outer_; }

const std::string& Tag::current() {
  static const std::string none;
  return innermost == nullptr ? none : innermost->text_;
}

std::int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

}  // namespace tessera::comm
