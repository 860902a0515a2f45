#pragma once
/// \file
/// Compares the collectives of ranks that share no board (another host, or a foreign launcher) by exchanging sightings
/// through the job's store. Uses its own thread and connection: a slow or lost store must delay neither the heartbeat
/// nor any wait.

#include <tessera/wire/neighbours.h>

#include <c10/util/intrusive_ptr.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace c10d {
class Store;
}

namespace tessera::comm {

class Exchange {
 public:
  /// Clones the store in its thread. If that fails, or the store is unreachable, the comparison stops; the program
  /// continues.
  Exchange(int rank, const c10::intrusive_ptr<c10d::Store>& store);
  /// Stops the thread; abandons it after one second if it hangs in a request.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void add_group(std::uint32_t id, const std::vector<int>& members);
  /// `on`: exchange as often as possible, because a caller waits for the result.
  void hurry(bool on);
  /// Publishes the reason why the other ranks must stop.
  void spread(const std::string& verdict);
  bool settled(const launch::Entry& entry) const;
  /// False after the store was lost: no further results will arrive.
  bool alive() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the thread
};

}  // namespace tessera::comm
