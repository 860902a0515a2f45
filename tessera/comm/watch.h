#pragma once
/// \file
/// Why a waiting rank must stop, and the watcher thread that finds out. Every 100 ms it updates the rank's heartbeat on
/// the board (launch/agent/board.h) and compares this rank's collectives with those of a neighbour in each group
/// (mismatch.h), so that ranks that started different collectives are named within a second.

#include <tessera/comm/heartbeat.h>
#include <tessera/launch/watch/record.h>

#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace tessera::comm {

/// Returns the reason why no wait of this process can succeed, or nullopt. Reasons: the launcher's agent asks the ranks
/// to end (a peer failed), this process belongs to a replaced generation, or collectives do not match. Backends call it
/// at least every 200 ms while they wait, and throw Error with it. Any thread; about 10 ns.
std::optional<std::string> stop_requested();
/// Throws Error with the reason, if there is one.
void throw_if_stopped();

/// Called after a collective failed for a reason that the transport may not know: waits (at most a second) until its
/// record has been compared with the neighbours', and returns the mismatch or the reason to stop, if any. Returns
/// nullopt before init().
std::optional<std::string> explain_failure(const launch::Entry& entry);
/// As above, for an error that cannot be attributed to a collective.
std::optional<std::string> explain_crash();

/// The watcher: one thread from the constructor to the destructor, which joins it (a process must not fork while it has
/// threads), and a second one if ranks share no board (exchange.h). Both block signals. Owned by the World.
class Watcher {
 public:
  /// Call after heartbeat().join(); starts the heartbeat.
  explicit Watcher(int rank);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The job's store, for ranks that share no board. It is cloned, so the caller's waits do not delay it.
  void set_store(c10::intrusive_ptr<c10d::Store> store);

  /// Adds a group whose collectives are to be compared; call before its first collective. `id`: equal on all its ranks,
  /// > 0, unique. `members`: global ranks in the group's order, including this one.
  void add_group(std::uint32_t id, const std::vector<int>& members);

  /// See explain_failure(); nullptr: any collective may be the cause.
  std::optional<std::string> explain(const launch::Entry* entry, std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::comm
