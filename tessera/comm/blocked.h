#pragma once
/// \file
/// What the threads of this process are blocked in: only a process of which every thread that starts collectives waits
/// for one can be part of a deadlock.

#include <atomic>
#include <cstdint>
#include <optional>

namespace tessera::comm {

/// A collective that is waited for.
struct BlockedIn {
  std::uint64_t entry_id = 0;  ///< the recorder's number
  std::int64_t since_ns = 0;
};

/// One place per thread that ever waited; a thread that ends gives its place back.
class BlockedThreads {
 public:
  static constexpr int capacity = 64;

  /// The newest wait when every known thread is blocked, else nullopt (also before the first wait, and once more
  /// threads than `capacity` wait at a time).
  std::optional<BlockedIn> all() const;

 private:
  friend class Blocked;
  struct alignas(64) Place {
    std::atomic<bool> taken{false};
    std::atomic<std::uint64_t> waiting_for{0};  // 1 + entry id; 0: computing
    std::atomic<std::int64_t> since_ns{0};
  };
  Place* place_of_this_thread();

  Place places_[capacity];
  std::atomic<bool> overflow_{false};
};

/// This process's threads.
BlockedThreads& blocked_threads();

/// While it lives, this thread waits for that entry of the recorder. Nests; the outer one counts.
class Blocked {
 public:
  Blocked(std::uint64_t entry_id, std::int64_t now_ns);
  ~Blocked();
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  BlockedThreads::Place* place_;  // nullptr: an outer one counts, or there is no place left
};

}  // namespace tessera::comm
