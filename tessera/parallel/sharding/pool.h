#pragma once
/// \file
/// Buffers of the sharding engine: flat parameters and gradients are allocated and freed many times per step, and fresh
/// pages cost more than the collective that fills them. All bytes are accounted for.
///
/// Units differ in size, but two buffers should serve them all: a request of at least a quarter of the largest
/// announced size gets a buffer of that size, whose unused end is never touched. Smaller requests get buffers of their
/// own size, and so does every request for which a larger one would exceed the bound: 1.05 times the peak of bytes in
/// use, or 1.05 times two buffers of the largest size. A free buffer of up to four times the size, such as the root's,
/// is reused. Unused buffers are freed to make room before anything is allocated.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

#include <array>
#include <cstdint>
#include <map>
#include <utility>

namespace tessera::parallel {

/// The purpose of a buffer; each has its own account. `shards`: results of reductions, as long as a shard.
enum class BufferUse { whole_parameters, gradients, shards };

/// Not thread-safe: guarded by the engine's mutex.
class BufferPool {
 public:
  /// Allocates memory that `group`'s backend can read in place (comm::empty_shared).
  explicit BufferPool(comm::Group group) : group_(std::move(group)) {}

  /// Announces that buffers of this size will be taken repeatedly. (The root's is not announced: it is taken once per
  /// step, and buffers of its size would be far too large for the others.)
  void announce(std::int64_t numel, at::ScalarType dtype, BufferUse use);
  /// [numel], values undefined.
  at::Tensor take(std::int64_t numel, at::ScalarType dtype, BufferUse use);
  /// Returns `buffer`, which came from take() with the same use, for reuse.
  void give(at::Tensor buffer, BufferUse use);

  /// Bytes taken and not given back: current and peak.
  std::int64_t in_use(BufferUse use) const { return shelf(use).now; }
  std::int64_t peak(BufferUse use) const { return shelf(use).peak; }
  std::int64_t unused() const;  ///< bytes kept for reuse

 private:
  struct Shelf {
    std::int64_t now = 0, peak = 0;                     ///< bytes taken, as requested
    std::int64_t largest = 0;                           ///< bytes, announced
    std::int64_t allocated = 0, unused = 0;             ///< bytes of the buffers taken, and of those in `free`
    std::multimap<std::int64_t, at::Tensor> free = {};  ///< by bytes
  };
  const Shelf& shelf(BufferUse use) const { return shelves_[static_cast<std::size_t>(use)]; }
  Shelf& shelf(BufferUse use) { return shelves_[static_cast<std::size_t>(use)]; }

  comm::Group group_;
  std::array<Shelf, 3> shelves_{};
};

}  // namespace tessera::parallel
