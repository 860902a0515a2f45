#include <tessera/comm/blocked.h>

namespace tessera::comm {

std::optional<BlockedIn> BlockedThreads::all() const {
  if (overflow_.load(std::memory_order_relaxed)) return std::nullopt;
  std::optional<BlockedIn> newest;
  for (const Place& place : places_) {
    if (!place.taken.load(std::memory_order_acquire)) continue;
    const std::uint64_t waiting_for = place.waiting_for.load(std::memory_order_acquire);
    if (waiting_for == 0) return std::nullopt;
    const BlockedIn here{waiting_for - 1, place.since_ns.load(std::memory_order_relaxed)};
    if (!newest || here.since_ns > newest->since_ns) newest = here;
  }
  return newest;
}

BlockedThreads::Place* BlockedThreads::place_of_this_thread() {
  struct Lease {
    Place* place = nullptr;
    ~Lease() {
      if (place != nullptr) place->taken.store(false, std::memory_order_release);
    }
  };
  thread_local Lease lease;
  if (lease.place != nullptr) return lease.place;
  for (Place& place : places_) {
    bool free = false;
    if (place.taken.load(std::memory_order_relaxed) || !place.taken.compare_exchange_strong(free, true)) continue;
    place.waiting_for.store(0, std::memory_order_relaxed);
    return lease.place = &place;
  }
  overflow_.store(true, std::memory_order_relaxed);
  return nullptr;
}

Blocked::Blocked(std::uint64_t entry_id, std::int64_t now_ns) : place_(blocked_threads().place_of_this_thread()) {
  if (place_ == nullptr) return;
  if (place_->waiting_for.load(std::memory_order_relaxed) != 0) {
    place_ = nullptr;
    return;
  }
  place_->since_ns.store(now_ns, std::memory_order_relaxed);
  place_->waiting_for.store(entry_id + 1, std::memory_order_release);
}

Blocked::~Blocked() {
  if (place_ != nullptr) place_->waiting_for.store(0, std::memory_order_release);
}

}  // namespace tessera::comm
