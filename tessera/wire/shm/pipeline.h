#pragma once
/// \file
/// Chunks of a large collective on their way through the staging of its ranks.

#include <tessera/wire/operation.h>
#include <tessera/wire/shm/communicator.h>

#include <cstdint>
#include <functional>
#include <vector>

namespace tessera::wire::shm {

/// Step k of a rank: produce (copy chunk k into the own staging), reduce (fold the own slice of it), take (read what is
/// needed from the others). Each rank does whatever it can and sleeps only when nothing is possible; then it waits for
/// what its oldest unfinished step needs. That step of the slowest rank is always possible, so nobody waits for ever.
class Pipeline {
 public:
  using Step = std::function<void(std::uint32_t)>;

  Pipeline(Communicator& communicator, const Operation& operation, std::uint64_t number, std::uint32_t steps)
      : communicator_(communicator),
        number_(number),
        steps_(steps),
        wait_{operation.entry, "in the middle of it", operation.timeout} {}

  Step produce, reduce, take;  ///< empty: this rank (reduce: no rank) has none
  std::vector<int> producers;  ///< the other ranks that stage
  std::vector<int> takers;     ///< the other ranks that read, everybody's staging being the same

  void run();

 private:
  Slot& slot(int rank) const { return communicator_.control(rank).slots[number_ % slot_count]; }
  // The first rank that has not come so far yet, or -1.
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
