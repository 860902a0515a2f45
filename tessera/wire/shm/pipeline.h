#pragma once
/// \file
/// Moves the chunks of a large collective through the ranks' staging areas.

#include <tessera/wire/operation.h>
#include <tessera/wire/shm/communicator.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::wire::shm {

/// Step k of a rank: produce (copy chunk k into this rank's staging), reduce (fold this rank's slice of it), take (read
/// the parts it needs from the others). Each rank does whatever is possible. If nothing is, it sleeps and waits for
/// what its oldest unfinished step needs. The slowest rank can always do this step, so no deadlock is possible.
class Pipeline {
 public:
  using Step = std::function<void(std::uint32_t)>;

  Pipeline(Communicator& communicator, const Operation& operation, std::uint64_t number, std::uint32_t steps)
      : communicator_(communicator),
        number_(number),
        steps_(steps),
        wait_{operation.entry, "in the middle of it", operation.timeout} {}

  Step produce, reduce, take;  ///< empty: not needed on this rank (reduce: on any rank)
  std::vector<int> producers;  ///< the other ranks that stage chunks
  std::vector<int> takers;     ///< the other ranks that read, the same for every rank's staging

  void run();

 private:
  Slot& slot(int rank) const { return communicator_.control(rank).slots[number_ % slot_count]; }
  // The first rank that has not progressed that far yet, or -1.
  int staging_in_use(std::uint32_t k) const;
  int not_produced(std::uint32_t k) const;
  int not_reduced(std::uint32_t k) const;
  void done(std::atomic<std::uint32_t>& counter, std::uint32_t steps);
  bool advance();
  void block();

  Communicator& communicator_;
  std::uint64_t number_;
  std::uint32_t steps_;
  Communicator::Wait wait_;
  std::uint32_t produced_ = 0, reduced_ = 0, taken_ = 0;
};

}  // namespace tessera::wire::shm
