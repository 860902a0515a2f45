#pragma once
/// \file
/// The collectives that block the threads of this process. A process can be part of a deadlock only if every thread
/// that starts collectives is waiting for one.

#include <atomic>
#include <cstdint>
#include <optional>

namespace tessera::comm {

/// A collective that a thread waits for.
struct BlockedIn {
  std::uint64_t entry_id = 0;  ///< its id in the recorder
  std::int64_t since_ns = 0;
};

/// One slot per thread that has ever waited; a thread that ends releases its slot.
class BlockedThreads {
 public:
  static constexpr int capacity = 64;

  /// The newest wait if every known thread is blocked, else nullopt. Also nullopt before the first wait, and
  /// permanently after more than `capacity` threads have waited at once.
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

/// Marks this thread as waiting for that entry of the recorder while the object lives. May nest; the outermost counts.
class Blocked {
 public:
  Blocked(std::uint64_t entry_id, std::int64_t now_ns);
  ~Blocked();
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  BlockedThreads::Place* place_;  // nullptr: nested in another Blocked, or no slot is free
};

}  // namespace tessera::comm
