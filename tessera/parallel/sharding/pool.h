#pragma once
/// \file
/// Buffers of the sharding engine: flat parameters and gradients come and go many times per step, and fresh pages cost
/// more than the collective that fills them. All bytes are accounted.
///
/// Units may be of any sizes, and yet two buffers shall serve them all: a request of at least a quarter of the largest
/// that was announced gets a buffer of that size, whose end is not touched as long as nobody needs it. Smaller requests
/// get buffers of their own size, and so do all where larger ones would pass the bound: there is never (5 % apart) more
/// than was in use at one time, or two of the largest; but a unit may lie in the root's buffer while that is free. What
/// is unused makes room before anything is allocated.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

#include <array>
#include <cstdint>
#include <map>
#include <utility>

namespace tessera::parallel {

/// What a buffer is for. `shards`: results of reductions, as long as a shard.
enum class BufferUse { whole_parameters, gradients, shards };

/// Not thread-safe: the engine's mutex.
class BufferPool {
 public:
  /// Memory where `group`'s backend reads it in place (comm::empty_shared).
  explicit BufferPool(comm::Group group) : group_(std::move(group)) {}

  /// Buffers of this size will be taken, again and again. (The root's is not announced: it is taken once a step, and
  /// buffers of its size would be far too large for the others.)
  void announce(std::int64_t numel, at::ScalarType dtype, BufferUse use);
  /// [numel], values undefined.
  at::Tensor take(std::int64_t numel, at::ScalarType dtype, BufferUse use);
  /// Back for reuse. `buffer` must have come from take() with the same use.
  void give(at::Tensor buffer, BufferUse use);

  /// Bytes out now, and the most there ever were.
  std::int64_t in_use(BufferUse use) const { return shelf(use).now; }
  std::int64_t peak(BufferUse use) const { return shelf(use).peak; }
  std::int64_t unused() const;

 private:
  struct Shelf {
    std::int64_t now = 0, peak = 0;                     ///< bytes that were asked for
    std::int64_t largest = 0;                           ///< announced
    std::int64_t allocated = 0, unused = 0;             ///< bytes of the buffers that are out, and of those in `free`
    std::multimap<std::int64_t, at::Tensor> free = {};  ///< by bytes
  };
  const Shelf& shelf(BufferUse use) const { return shelves_[static_cast<std::size_t>(use)]; }
  Shelf& shelf(BufferUse use) { return shelves_[static_cast<std::size_t>(use)]; }

  comm::Group group_;
  std::array<Shelf, 3> shelves_{};
};

}  // namespace tessera::parallel
