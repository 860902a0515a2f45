#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>

#include <algorithm>

namespace tessera::comm {

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

}  // namespace tessera::comm
