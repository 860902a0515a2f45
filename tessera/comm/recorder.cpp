#include <tessera/base/clock.h>
#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::comm {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
constexpr std::uint64_t no_id = ~std::uint64_t{0};

std::atomic_ref<std::uint64_t> id_of(Entry& entry) { return std::atomic_ref(entry.id); }

void forget_entries(launch::RankSlot& slot) {
  const std::uint64_t used = std::min<std::uint64_t>(slot.next_entry.exchange(0), launch::RankSlot::ring_size);
  for (std::uint64_t i = 0; i < used; ++i) id_of(slot.ring[i]).store(no_id, relaxed);
}

thread_local std::int64_t moved_by_this_thread = -1;
thread_local const Tag* innermost = nullptr;

}  // namespace

Recorder::Recorder() : own_(std::make_unique<launch::RankSlot>()), slot_(own_.get()) { launch::clear(*own_); }
Recorder::Recorder(launch::RankSlot& slot) : slot_(&slot) {}

void Recorder::attach(launch::RankSlot& slot) {
  slot_ = &slot;
  own_.reset();
}

Entry* Recorder::find(std::uint64_t id) const {
  Entry& entry = slot_->ring[id % capacity];
  return id_of(entry).load(relaxed) == id ? &entry : nullptr;
}

// Another process may read the ring at any moment, and this one may die at any: an entry has its id only while the rest
// of it is whole.
std::uint64_t Recorder::begin(Entry entry) {
  if (entry.start_ns == 0) entry.start_ns = monotonic_ns();
  Sums& sums = sums_[static_cast<int>(entry.op)];
  sums.count.fetch_add(1, relaxed);
  sums.payload_bytes.fetch_add(entry.payload_bytes, relaxed);
  sums.wire_bytes.fetch_add(entry.wire_bytes, relaxed);
  sums.moved_bytes.fetch_add(entry.wire_bytes, relaxed);
  entry.moved_bytes = entry.wire_bytes;

  const std::uint64_t id = entry.id = slot_->next_entry.fetch_add(1, relaxed);
  Entry& place = slot_->ring[id % capacity];
  id_of(place).store(no_id, relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  constexpr std::size_t head = sizeof entry.id;
  static_assert(offsetof(Entry, id) == 0 && std::is_trivially_copyable_v<Entry>);
  std::memcpy(reinterpret_cast<char*>(&place) + head, reinterpret_cast<const char*>(&entry) + head,
              sizeof entry - head);
  id_of(place).store(id, std::memory_order_release);
  return id;
}

void Recorder::blocked(std::uint64_t id, Op op, std::int64_t waited_ns) {
  sums_[static_cast<int>(op)].waited_ns.fetch_add(waited_ns, relaxed);
  slot_->comm_ns.fetch_add(waited_ns, relaxed);
  if (Entry* entry = find(id)) entry->waited_ns += waited_ns;
}

void Recorder::finish(std::uint64_t id, Op op, Status status, std::int64_t waited_ns, std::int64_t in_flight_ns) {
  const std::int64_t now = monotonic_ns();
  if (status == Status::failed) failed_.store(true, relaxed);
  blocked(id, op, waited_ns);
  sums_[static_cast<int>(op)].in_flight_ns.fetch_add(in_flight_ns, relaxed);
  slot_->progress.fetch_add(1, relaxed);
  slot_->progress_ns.store(now, relaxed);
  Entry* entry = find(id);
  if (entry == nullptr) return;
  entry->end_ns = now;
  std::atomic_ref(entry->status).store(status, std::memory_order_release);
}

void Recorder::moved(const Entry& entry, std::int64_t bytes) {
  sums_[static_cast<int>(entry.op)].moved_bytes.fetch_add(bytes - entry.wire_bytes, relaxed);
  if (Entry* place = find(entry.id)) place->moved_bytes = bytes;
}

std::vector<Entry> Recorder::last(std::size_t count) const { return launch::last_entries(*slot_, count); }

std::vector<OpTotals> Recorder::totals() const {
  std::vector<OpTotals> rows;
  for (int i = 0; i < op_count; ++i) {
    const Sums& sums = sums_[i];
    OpTotals row{static_cast<Op>(i)};
    row.count = sums.count.load(relaxed);
    if (row.count == 0) continue;
    row.payload_bytes = sums.payload_bytes.load(relaxed);
    row.wire_bytes = sums.wire_bytes.load(relaxed);
    row.moved_bytes = sums.moved_bytes.load(relaxed);
    row.seconds_waited = static_cast<double>(sums.waited_ns.load(relaxed)) * 1e-9;
    row.seconds_in_flight = static_cast<double>(sums.in_flight_ns.load(relaxed)) * 1e-9;
    rows.push_back(row);
  }
  return rows;
}

double Recorder::seconds_waited() const {
  std::int64_t ns = 0;
  for (const Sums& sums : sums_) ns += sums.waited_ns.load(relaxed);
  return static_cast<double>(ns) * 1e-9;
}

void Recorder::clear() {
  forget_entries(*slot_);
  for (Sums& sums : sums_) {
    sums.count.store(0, relaxed);
    for (auto* sum : {&sums.payload_bytes, &sums.wire_bytes, &sums.moved_bytes, &sums.waited_ns, &sums.in_flight_ns})
      sum->store(0, relaxed);
  }
  failed_.store(false, relaxed);
}

void report_moved(std::int64_t bytes) {
  moved_by_this_thread = std::max<std::int64_t>(moved_by_this_thread, 0) + bytes;
}
std::int64_t take_moved() { return std::exchange(moved_by_this_thread, -1); }

Tag::Tag(std::string text) : text_(std::move(text)), outer_(innermost) { innermost = this; }
Tag::~Tag() { innermost = outer_; }

const std::string& Tag::current() {
  static const std::string none;
  return innermost == nullptr ? none : innermost->text_;
}

}  // namespace tessera::comm
