#include <tessera/wire/shm/pipeline.h>

namespace tessera::wire::shm {

// A chunk may be overwritten once all its readers have taken the chunk that it replaces.
int Pipeline::staging_in_use(std::uint32_t k) const {
  for (const int r : takers) {
    if (slot(r).consumed.load(std::memory_order_acquire) + staging_depth <= k) return r;
  }
  return -1;
}

int Pipeline::not_produced(std::uint32_t k) const {
  for (const int r : producers) {
    if (slot(r).produced.load(std::memory_order_acquire) <= k) return r;
  }
  return -1;
}

int Pipeline::not_reduced(std::uint32_t k) const {
  if (!reduce) return -1;
  for (const int r : takers) {
    if (slot(r).reduced.load(std::memory_order_acquire) <= k) return r;
  }
  return -1;
}

void Pipeline::done(std::atomic<std::uint32_t>& counter, std::uint32_t steps) {
  publish_stores();
  counter.store(steps, std::memory_order_release);
  communicator_.control().pulse.ring();
}

bool Pipeline::advance() {
  Slot& mine = slot(communicator_.rank());
  bool moved = false;
  if (taken_ < steps_ && take) {
    const bool reduced = !reduce || taken_ < reduced_;
    if (reduced && not_reduced(taken_) < 0 && (reduce || not_produced(taken_) < 0)) {
      take(taken_);
      done(mine.consumed, ++taken_);
      moved = true;
    }
  }
  if (reduced_ < steps_ && reduce && (!produce || reduced_ < produced_) && not_produced(reduced_) < 0) {
    reduce(reduced_);
    done(mine.reduced, ++reduced_);
    moved = true;
  }
  if (produced_ < steps_ && produce && staging_in_use(produced_) < 0) {
    produce(produced_);
    done(mine.produced, ++produced_);
    moved = true;
  }
  return moved;
}

void Pipeline::block() {
  const std::uint32_t oldest = take ? taken_ : produced_;
  if (produce && produced_ <= oldest && produced_ < steps_) {
    const std::uint32_t k = produced_;
    if (const int r = staging_in_use(k); r >= 0) {
      communicator_.await_pulse(r, wait_,
                                [&] { return slot(r).consumed.load(std::memory_order_acquire) + staging_depth > k; });
    }
    return;
  }
  const std::uint32_t k = oldest;
  if (!reduce || reduced_ <= k) {
    if (const int r = not_produced(k); r >= 0) {
      communicator_.await_pulse(r, wait_, [&] { return slot(r).produced.load(std::memory_order_acquire) > k; });
      return;
    }
  }
  if (const int r = not_reduced(k); r >= 0) {
    communicator_.await_pulse(r, wait_, [&] { return slot(r).reduced.load(std::memory_order_acquire) > k; });
  }
}

void Pipeline::run() {
  while ((produce && produced_ < steps_) || (take && taken_ < steps_)) {
    if (!advance()) block();
  }
}

}  // namespace tessera::wire::shm
