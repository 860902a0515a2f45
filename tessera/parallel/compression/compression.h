#pragma once
/// \file
/// parallel/compression/: gradient compression, which replaces the plain reduction of one flat gradient. One interface
/// for all methods and strategies.

#include <ATen/core/Tensor.h>

#include <tessera/comm/group.h>
#include <tessera/layout/gradient_compression.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tessera::parallel {

/// The position of one parameter in a flat gradient.
struct CompressedSegment {
  std::vector<std::int64_t> shape;     ///< shape of the whole parameter
  std::int64_t offset = 0, numel = 0;  ///< elements of `flat`: [offset, offset + numel)
};

/// One flat gradient to reduce. `flat` [n] is this rank's, may be overwritten, and is padded to n = size x m (any n for
/// an all-reduce). Elements outside of the segments (padding, counters) are reduced exactly.
struct ReductionRequest {
  std::string_view key;  ///< identifies the buffer in every step and on every rank; error feedback is stored under it
  at::Tensor flat;       ///< [n], contiguous
  const std::vector<CompressedSegment>& segments;  ///< parameters in `flat`; they do not overlap
  const comm::Group& group;                        ///< the ranks that reduce
  comm::Reduction reduction;                       ///< mean or sum
  /// [m] of this rank, or [n] for an all-reduce (may be `flat` itself): receives the result.
  at::Tensor output;
  bool scatter;  ///< true: output is this rank's part
};

/// A compression method. Collective: every rank of the group calls reduce() in the same order. Not thread-safe. On one
/// rank nothing is compressed. The result has the same bits on every rank. A non-finite gradient gives a non-finite
/// result and leaves error feedback unchanged.
class Compression {
 public:
  virtual ~Compression() = default;
  virtual std::string name() const = 0;  ///< the method's word in descriptions
  /// The result is in `output` when the returned work is done. Methods with several dependent collectives (all but fp16
  /// and bf16) wait for them, so that the order of collectives does not depend on when the caller waits.
  virtual comm::Work reduce(const ReductionRequest& request) = 0;
  /// Call after each optimizer step (methods that start after some steps, such as PowerSGD, count them). If it is never
  /// called, each reduction of a key counts as a step: too many when gradients are accumulated.
  virtual void step_done() {}
  /// Bytes per rank that plain reductions of the gradients so far would have sent, and bytes actually sent, both as
  /// counted by launch::wire_bytes(). Zeros on one rank.
  virtual std::pair<std::int64_t, std::int64_t> bytes() const = 0;
  /// State for a checkpoint (error feedback), by name. Per rank: ranks have different errors.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const { return {}; }
  /// Restores state(); call before the first reduce(). State that does not fit (because the number of ranks has
  /// changed) is reset at its first use. For whole gradients a key names a bucket, so the buckets must equal those of
  /// the saved run (Sharded::set_gradient_order).
  virtual void restore(const std::vector<std::pair<std::string, at::Tensor>>& state) { static_cast<void>(state); }
};

/// The method; nullptr for `none`.
std::shared_ptr<Compression> make_compression(const layout::GradientCompression& asked);
/// The method for a description such as "powersgd:rank=2,start=1000" (layout/gradient_compression.h). Throws
/// InputError.
std::shared_ptr<Compression> make_compression(std::string_view description);

}  // namespace tessera::parallel
