#pragma once
/// \file
/// Buffers of the sharding engine: flat parameters and gradients come and go many times per step, and fresh pages cost
/// more than the collective that fills them. Buffers are reused by size; all bytes are accounted.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>

#include <array>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// What a buffer is for.
enum class BufferUse { whole_parameters, gradients };

/// Not thread-safe: the engine's mutex.
class BufferPool {
 public:
  /// Memory where `group`'s backend reads it in place (comm::empty_shared).
  explicit BufferPool(comm::Group group) : group_(std::move(group)) {}

  /// [numel], values undefined.
  at::Tensor take(std::int64_t numel, at::ScalarType dtype, BufferUse use);
  /// Back for reuse. `buffer` must have come from take() with the same use.
  void give(at::Tensor buffer, BufferUse use);

  /// Bytes out now, and the most there ever were.
  std::int64_t in_use(BufferUse use) const { return counts_[static_cast<std::size_t>(use)].now; }
  std::int64_t peak(BufferUse use) const { return counts_[static_cast<std::size_t>(use)].peak; }
  std::int64_t unused() const { return unused_; }
  void reset_peaks();
  /// Frees the unused buffers.
  void trim();

 private:
  struct Count {
    std::int64_t now = 0, peak = 0;
  };
  comm::Group group_;
  std::map<std::pair<at::ScalarType, std::int64_t>, std::vector<at::Tensor>> free_;
  std::array<Count, 2> counts_{};
  std::int64_t unused_ = 0;
};

}  // namespace tessera::parallel
