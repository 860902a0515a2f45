#pragma once
/// \file
/// Why a rank that waits for others must stop waiting, and the thread that finds out: the watcher. Every 100 ms it
/// writes the rank's sign of life on the board (launch/board.h), and compares the collectives of this rank with those of
/// a neighbour in each group (mismatch.h), so that ranks that started different ones are named within a second.

#include <tessera/comm/life.h>
#include <tessera/launch/record.h>

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

/// While it lives, this thread waits for the collective with that id of the recorder (0 and up). Tells the watcher what
/// the threads of this process are blocked in. Nests; the outer one counts.
class Blocked {
 public:
  explicit Blocked(std::uint64_t entry_id);
  ~Blocked();
  Blocked(const Blocked&) = delete;
  Blocked& operator=(const Blocked&) = delete;

 private:
  bool outer_;
};

/// The watcher: one thread from the constructor to the destructor (which joins it: nothing may fork with threads).
/// Signals are blocked in it. Owned by the World.
class Watcher {
 public:
  /// `store`: of the job, for ranks that share no board; cloned, so that the caller's waits do not hold it up; may be
  /// null (one rank).
  Watcher(int rank, int world_size, const c10::intrusive_ptr<c10d::Store>& store);
  ~Watcher();

  /// A group whose collectives are to be compared. `id`: equal on all its ranks, > 0, unique; `members`: global ranks.
  void add_group(std::uint32_t id, std::vector<int> members);

  /// A collective of this process failed with an error that the transport cannot explain. Waits until the neighbours'
  /// records are compared, at most `patience`, and returns the mismatch or the reason to stop, if there is one.
  std::optional<std::string> explain(const launch::Entry& entry, std::chrono::milliseconds patience);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tessera::comm
