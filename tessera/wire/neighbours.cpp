#include <tessera/wire/neighbours.h>

#include <tessera/base/clock.h>
#include <tessera/base/error.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

namespace tessera::wire {

using launch::Entry;

Sighting look_at(const launch::RankSlot& slot, int rank, std::uint64_t& cursor) {
  Sighting sighting;
  sighting.rank = rank;
  sighting.state = slot.state.load(std::memory_order_acquire);
  sighting.pulse = static_cast<std::uint64_t>(slot.heartbeat_ns.load(std::memory_order_acquire));
  if (const std::uint64_t blocked = slot.blocked_in.load(std::memory_order_acquire); blocked != 0) {
    sighting.blocked_in = launch::entry_of(slot, blocked - 1);
    sighting.blocked_ns = monotonic_ns() - slot.blocked_since_ns.load(std::memory_order_relaxed);
    // The rank may have continued since its watcher looked.
    if (sighting.blocked_in && sighting.blocked_in->status != launch::Status::started) sighting.blocked_in.reset();
  }
  const std::uint64_t next = slot.next_entry.load(std::memory_order_acquire);
  if (next < cursor) cursor = 0;  // the record was cleared
  if (next - cursor > launch::RankSlot::ring_size) cursor = next - launch::RankSlot::ring_size;
  constexpr std::uint64_t being_written = 64;  // number of threads that may be inside Recorder::begin() at once
  for (; cursor < next; ++cursor) {
    if (auto entry = launch::entry_of(slot, cursor)) {
      sighting.entries.push_back(*entry);
    } else if (next - cursor <= being_written) {
      break;
    }
  }
  return sighting;
}

namespace {

struct Header {
  char magic[8];
  std::int32_t rank;
  std::uint32_t state;
  std::uint64_t pulse;
  std::int64_t blocked_ns;
  std::uint32_t blocked;
  std::uint32_t entries;
};
constexpr char magic[8] = "TESSEEN";
static_assert(std::is_trivially_copyable_v<Header> && std::is_trivially_copyable_v<Entry>);

}  // namespace

std::string encode(const Sighting& sighting) {
  Header header{};
  std::memcpy(header.magic, magic, sizeof magic);
  header.rank = sighting.rank;
  header.state = static_cast<std::uint32_t>(sighting.state);
  header.pulse = sighting.pulse;
  header.blocked_ns = sighting.blocked_ns;
  header.blocked = sighting.blocked_in.has_value();
  header.entries = static_cast<std::uint32_t>(sighting.entries.size());
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  const auto add = [&](const Entry& entry) { bytes.append(reinterpret_cast<const char*>(&entry), sizeof entry); };
  if (sighting.blocked_in) add(*sighting.blocked_in);
  for (const Entry& entry : sighting.entries) add(entry);
  return bytes;
}

std::optional<Sighting> decode(std::string_view bytes) {
  Header header;
  if (bytes.size() < sizeof header) return std::nullopt;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes.remove_prefix(sizeof header);
  if (std::memcmp(header.magic, magic, sizeof magic) != 0 || header.blocked > 1 ||
      header.entries > launch::RankSlot::ring_size ||
      header.state > static_cast<std::uint32_t>(launch::last_rank_state) ||
      bytes.size() != (std::size_t{header.blocked} + header.entries) * sizeof(Entry)) {
    return std::nullopt;
  }
  const auto take = [&](Entry& entry) {
    std::memcpy(static_cast<void*>(&entry), bytes.data(), sizeof entry);
    bytes.remove_prefix(sizeof entry);
    return launch::repair(entry);
  };
  Sighting sighting;
  sighting.rank = header.rank;
  sighting.state = static_cast<launch::RankState>(header.state);
  sighting.pulse = header.pulse;
  sighting.blocked_ns = header.blocked_ns;
  if (header.blocked != 0 && !take(sighting.blocked_in.emplace())) return std::nullopt;
  sighting.entries.resize(header.entries);
  for (Entry& entry : sighting.entries) {
    if (!take(entry)) return std::nullopt;
  }
  return sighting;
}

int neighbour_of(int rank, const std::vector<int>& members) {
  const auto place = std::find(members.begin(), members.end(), rank);
  TESSERA_CHECK(place != members.end(), "rank ", rank, " is not a member of its group");
  return place + 1 == members.end() ? members.front() : *(place + 1);
}

void Comparer::add_group(std::uint32_t id, const std::vector<int>& members) {
  const std::lock_guard lock(mutex_);
  const int next = neighbour_of(rank_, members);
  if (next != rank_) pairs_.try_emplace(next, Pair{PairCheck(rank_, next), {}});
  // A neighbour in one group is compared in every shared group, because deadlocks may involve several groups.
  for (auto& [other, pair] : pairs_) {
    if (std::find(members.begin(), members.end(), other) == members.end()) continue;
    pair.check.add_group(id, members);
    pair.sizes[id] = members.size();
  }
}

std::vector<int> Comparer::others() const {
  const std::lock_guard lock(mutex_);
  std::vector<int> ranks;
  for (const auto& item : pairs_) ranks.push_back(item.first);
  return ranks;
}

std::optional<std::string> Comparer::compare(const Sighting& mine, const std::vector<Sighting>& theirs) {
  const std::lock_guard lock(mutex_);
  std::optional<std::string> found;
  for (auto& [other, pair] : pairs_) {
    const int rank = other;
    const auto seen = std::find_if(theirs.begin(), theirs.end(), [rank](const Sighting& s) { return s.rank == rank; });
    Sighting nothing;
    nothing.rank = rank;
    auto result = pair.check.update(mine, seen == theirs.end() ? nothing : *seen);
    if (result && !found) found = std::move(result);
  }
  return found;
}

bool Comparer::settled(const Entry& entry) const {
  const std::lock_guard lock(mutex_);
  for (const auto& [other, pair] : pairs_) {
    const auto size = pair.sizes.find(entry.group_id);
    if (size != pair.sizes.end() && size->second == 2) {
      return pair.check.equal_through(entry.group_id, entry.sequence);
    }
  }
  return false;
}

}  // namespace tessera::wire
