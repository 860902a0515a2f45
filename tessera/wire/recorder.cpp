#include <tessera/base/clock.h>
#include <tessera/base/text.h>
#include <tessera/wire/recorder.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace tessera::wire {
namespace {

constexpr auto relaxed = std::memory_order_relaxed;
using launch::GroupTotals;
using launch::RankSlot;

constexpr std::uint64_t no_id = ~std::uint64_t{0};

std::atomic_ref<std::uint64_t> id_of(Entry& entry) { return std::atomic_ref(entry.id); }

void forget_entries(launch::RankSlot& slot) {
  const std::uint64_t used = std::min<std::uint64_t>(slot.next_entry.exchange(0), launch::RankSlot::ring_size);
  for (std::uint64_t i = 0; i < used; ++i) id_of(slot.ring[i]).store(no_id, relaxed);
}

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

// A linear search is enough: a mesh has one group per axis.
std::uint8_t Recorder::row_of(const char (&group)[sizeof Entry::group]) const {
  constexpr std::size_t last = RankSlot::totals_size - 1;
  for (std::size_t i = 0; i <= last; ++i) {
    GroupTotals& row = slot_->totals[i];
    GroupTotals::State state = row.state.load(std::memory_order_acquire);
    if (state == GroupTotals::unused && row.state.compare_exchange_strong(state, GroupTotals::being_named)) {
      launch::write_text(row.group, i < last ? std::string_view(group) : "other groups");
      row.state.store(GroupTotals::named, std::memory_order_release);
      return static_cast<std::uint8_t>(i);
    }
    while (row.state.load(std::memory_order_acquire) == GroupTotals::being_named) {  // another thread is copying 32
                                                                                     // bytes
    }
    if (i == last || std::strncmp(row.group, group, sizeof row.group) == 0) return static_cast<std::uint8_t>(i);
  }
  return static_cast<std::uint8_t>(last);
}

GroupTotals::Sums& Recorder::sums_of(const Entry& entry) const {
  return slot_->totals[std::min<std::size_t>(entry.row, RankSlot::totals_size - 1)].sums[static_cast<int>(entry.op)];
}

// Another process may read the ring at any time, and this one may die at any time: an entry has its id only while its
// other fields are complete.
void Recorder::begin(Entry& entry) {
  if (entry.start_ns == 0) entry.start_ns = monotonic_ns();
  entry.row = row_of(entry.group);
  GroupTotals::Sums& sums = sums_of(entry);
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
}

void Recorder::blocked(const Entry& entry, std::int64_t waited_ns) {
  sums_of(entry).waited_ns.fetch_add(waited_ns, relaxed);
  slot_->comm_ns.fetch_add(waited_ns, relaxed);
  if (Entry* place = find(entry.id)) place->waited_ns += waited_ns;
}

void Recorder::finish(const Entry& entry, Status status, std::int64_t waited_ns, std::int64_t in_flight_ns) {
  const std::int64_t now = monotonic_ns();
  if (status == Status::failed) failed_.store(true, relaxed);
  blocked(entry, waited_ns);
  sums_of(entry).in_flight_ns.fetch_add(in_flight_ns, relaxed);
  slot_->progress.fetch_add(1, relaxed);
  slot_->progress_ns.store(now, relaxed);
  Entry* place = find(entry.id);
  if (place == nullptr) return;
  place->end_ns = now;
  std::atomic_ref(place->status).store(status, std::memory_order_release);
}

void Recorder::moved(const Entry& entry, std::int64_t bytes) {
  sums_of(entry).moved_bytes.fetch_add(bytes - entry.wire_bytes, relaxed);
  if (Entry* place = find(entry.id)) place->moved_bytes = bytes;
}

std::vector<Entry> Recorder::last(std::size_t count) const { return launch::last_entries(*slot_, count); }

std::vector<OpTotals> Recorder::totals() const {
  std::vector<OpTotals> rows;
  for (const GroupTotals& group : slot_->totals) {
    if (group.state.load(std::memory_order_acquire) != GroupTotals::named) break;
    for (int i = 0; i < op_count; ++i) {
      const GroupTotals::Sums& sums = group.sums[i];
      OpTotals row{static_cast<Op>(i), launch::read_text(group.group)};
      row.count = sums.count.load(relaxed);
      if (row.count == 0) continue;
      row.payload_bytes = sums.payload_bytes.load(relaxed);
      row.wire_bytes = sums.wire_bytes.load(relaxed);
      row.moved_bytes = sums.moved_bytes.load(relaxed);
      row.seconds_waited = static_cast<double>(sums.waited_ns.load(relaxed)) * 1e-9;
      row.seconds_in_flight = static_cast<double>(sums.in_flight_ns.load(relaxed)) * 1e-9;
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

double Recorder::seconds_waited() const {
  std::int64_t ns = 0;
  for (const GroupTotals& group : slot_->totals) {
    if (group.state.load(std::memory_order_acquire) != GroupTotals::named) break;
    for (const GroupTotals::Sums& sums : group.sums) ns += sums.waited_ns.load(relaxed);
  }
  return static_cast<double>(ns) * 1e-9;
}

// Keeps the groups' rows, because collectives in flight refer to them.
void Recorder::clear() {
  forget_entries(*slot_);
  for (GroupTotals& group : slot_->totals) {
    for (GroupTotals::Sums& sums : group.sums) {
      sums.count.store(0, relaxed);
      for (auto* sum : {&sums.payload_bytes, &sums.wire_bytes, &sums.moved_bytes, &sums.waited_ns, &sums.in_flight_ns})
        sum->store(0, relaxed);
    }
  }
  failed_.store(false, relaxed);
}

}  // namespace tessera::wire
