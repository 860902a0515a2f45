#pragma once
/// \file
/// Moves the bytes of a group's collectives, each in two halves: publish() makes this rank's contribution visible
/// (small payloads are copied into the slot, tensors in the arena are passed by offset, others are staged later), run()
/// waits for the others and reads theirs. A reduction always folds in rank order 0..R-1, whatever the sizes and chunks:
/// the same bits every time.
///
///   small all_reduce    every rank folds all inputs            one wait
///   large all_reduce    every rank folds its slice of each chunk, then copies the other slices; if all tensors are in
///                       the arena: folds its slice of every rank's tensor and writes it to every rank's
///   reduce_scatter      every rank folds its part of every rank's tensor
///   accumulating        the same, starting from the output; a large all_reduce always uses the staging,
///                       which has room for the results of a slice
///   all others          every rank copies from the ranks that give

#include <tessera/wire/operation.h>
#include <tessera/wire/shm/communicator.h>

#include <atomic>
#include <cstdint>

namespace tessera::wire::shm {

/// The collectives of one rank in one group. Used by one thread at a time; collectives are numbered 0, 1, ... and
/// published and run in that order, each published before it runs.
class Collectives {
 public:
  explicit Collectives(Communicator& communicator) : communicator_(communicator) {}

  /// True if the slot is free: every rank has finished the collective that used it.
  bool can_publish(std::uint64_t number) const;
  void wait_to_publish(const Operation& operation, std::uint64_t number) const;
  void publish(const Operation& operation, std::uint64_t number);

  /// True if run() would not block: every rank has published, and everything is in the slots.
  bool ready(const Operation& operation, std::uint64_t number) const;
  /// Blocks until the result is in the output and no rank reads this rank's tensors any more. Throws Error as
  /// Communicator::await does, and if the ranks' operations differ.
  void run(const Operation& operation, std::uint64_t number, const std::atomic<bool>& starter_blocked);

 private:
  struct Run;
  Communicator& communicator_;
  std::uint64_t staging_free_after_ = 0;  // the staging may be overwritten once every rank's `finished` is at least
                                          // this
};

/// True if the collective is small enough for every rank to read it whole from the slots, without a helper thread.
bool is_one_shot(const Operation& operation, int ranks);

}  // namespace tessera::wire::shm
