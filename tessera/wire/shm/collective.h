#pragma once
/// \file
/// How a group's collectives move their bytes. Each has two halves: publish() shows the others what this rank gives
/// (small payloads are copied into the slot, tensors in the arena are named, others will be staged), run() waits for
/// the others and takes. A reduction always folds in rank order 0..R-1, whatever the sizes and chunks: same bits every
/// time.
///
///   small all_reduce    every rank folds all inputs            one wait
///   large all_reduce    every rank folds its slice of each chunk, then takes the other slices; with all tensors in the
///                       arena: folds its slice from everybody's and writes it into everybody's
///   reduce_scatter      every rank folds its part from everybody's
///   that accumulate     likewise, starting from the output; large ones of all_reduce always pass through the staging,
///                       where the results of a slice have a place
///   all others          every rank copies from those who give

#include <tessera/wire/operation.h>
#include <tessera/wire/shm/communicator.h>

#include <atomic>
#include <cstdint>

namespace tessera::wire::shm {

/// The collectives of one rank in one group. One thread at a time; collectives are numbered 0, 1, ... and published and
/// run in that order, a collective before its run.
class Collectives {
 public:
  explicit Collectives(Communicator& communicator) : communicator_(communicator) {}

  /// Whether the slot is free, that is, everybody has finished the collective that used it.
  bool can_publish(std::uint64_t number) const;
  void wait_to_publish(const Operation& operation, std::uint64_t number) const;
  void publish(const Operation& operation, std::uint64_t number);

  /// Whether run() would not block: everybody has published, and everything is in the slots.
  bool ready(const Operation& operation, std::uint64_t number) const;
  /// Blocks until the result is in the output and nobody reads this rank's tensors any more. Throws Error, see
  /// Communicator::await, and for operations that differ.
  void run(const Operation& operation, std::uint64_t number, const std::atomic<bool>& starter_blocked);

 private:
  struct Run;
  Communicator& communicator_;
  std::uint64_t staging_free_after_ = 0;  // `finished` of everybody, from which the staging may be overwritten
};

/// Whether the collective is so small that every rank takes it whole from the slots, without a thread of its own.
bool is_one_shot(const Operation& operation, int ranks);

}  // namespace tessera::wire::shm
