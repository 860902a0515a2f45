#pragma once
/// \file
/// Why a rank that waits for others must stop waiting, and the thread that finds out: the watcher. Every 100 ms it
/// writes the rank's sign of life on the board (launch/agent/board.h), and compares the collectives of this rank with
/// those of a neighbour in each group (mismatch.h), so that ranks that started different ones are named within a
/// second.

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

/// A reason why no wait of this process can succeed any more, or nullopt: the launcher's agent asks the ranks to end
/// (a peer failed), this process belongs to a generation that was replaced, or collectives were found not to match.
/// Backends call it while they wait, at least every 200 ms, and throw Error with it. Any thread; some 10 ns.
std::optional<std::string> stop_requested();
/// Throws Error with the reason, if there is one.
void throw_if_stopped();

/// After a collective of this process failed for a reason that the transport may not know: waits (at most a second)
/// until its record is compared with the neighbours', and returns the mismatch, or the reason to stop, if there is one.
/// Nothing before init().
std::optional<std::string> explain_failure(const launch::Entry& entry);
/// Likewise after an error of which it is not known to which collective it belongs.
std::optional<std::string> explain_crash();

/// The watcher: one thread from the constructor to the destructor (which joins it: nothing may fork with threads), and
/// a second one where ranks share no board (exchange.h). Signals are blocked in both. Owned by the World.
class Watcher {
 public:
  /// After life().join(): the heart beats from here on.
  explicit Watcher(int rank);
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// The job's store, for ranks that share no board. Cloned, so that the caller's waits do not hold it up.
  void set_store(c10::intrusive_ptr<c10d::Store> store);

  /// A group whose collectives are to be compared, before the first of them. `id`: equal on all its ranks, > 0, unique;
  /// `members`: global ranks in the group's order, this one among them.
  void add_group(std::uint32_t id, const std::vector<int>& members);

  /// See explain_failure(); nullptr: any collective may be the cause.
  std::optional<std::string> explain(const launch::Entry* entry, std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::comm
