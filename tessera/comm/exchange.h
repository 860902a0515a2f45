#pragma once
/// \file
/// The comparison of ranks that share no board (another host, or another launcher than ours): sightings travel through
/// the job's store. A thread and a connection of its own, because a store may be slow to answer or gone, which must
/// hold up neither the sign of life nor anybody's wait.

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
  /// Clones the store in its thread; one that cannot be cloned or reached ends the comparison, not the program.
  Exchange(int rank, const c10::intrusive_ptr<c10d::Store>& store);
  /// Ends the thread. One that hangs in a request is left behind after a second.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  void add_group(std::uint32_t id, const std::vector<int>& members);
  /// Compare as soon and as often as possible: somebody waits for the result.
  void hurry(bool on);
  /// Tell the other ranks why they must stop.
  void spread(const std::string& verdict);
  bool settled(const launch::Entry& entry) const;
  /// False when the store was lost: nothing more will come.
  bool alive() const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;  // shared with the thread
};

}  // namespace tessera::comm
