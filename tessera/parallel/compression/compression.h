#pragma once
/// \file
/// parallel/compression/: gradient compression: what replaces the plain reduction of one flat gradient. One seam for
/// all methods and strategies.

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

/// The place of one parameter in a flat gradient.
struct CompressedSegment {
  std::vector<std::int64_t> shape;     ///< the whole parameter's
  std::int64_t offset = 0, numel = 0;  ///< elements of `flat`: [offset, offset + numel)
};

/// One flat gradient to be reduced. `flat` [n] is this rank's, may be overwritten, and is padded to n = size x m (for
/// an all-reduce any n will do). Elements outside of the segments (padding, counters) are reduced exactly.
struct ReductionRequest {
  std::string_view key;  ///< the same for the same buffer in every step and on every rank: error feedback is kept by it
  at::Tensor flat;       ///< [n], contiguous
  const std::vector<CompressedSegment>& segments;  ///< parameters in `flat`; they do not overlap
  const comm::Group& group;                        ///< the ranks that reduce
  comm::Reduction reduction;                       ///< mean or sum
  /// [m] of this rank, or [n] for an all-reduce (may be `flat` itself): receives the result.
  at::Tensor output;
  bool scatter;  ///< true: output is this rank's part
};

/// A method. Collective: every rank of the group calls reduce() in the same order. Not thread-safe. On one rank nothing
/// is compressed. The result has the same bits on every rank. A gradient that is not finite gives a result that is not
/// finite and leaves error feedback as it was.
class Compression {
 public:
  virtual ~Compression() = default;
  virtual std::string name() const = 0;  ///< the word of the method in descriptions
  /// The result is in `output` when the returned work is done. Methods whose collectives follow each other (all but
  /// fp16 and bf16) wait for them, so that the order of collectives does not depend on when somebody waits.
  virtual comm::Work reduce(const ReductionRequest& request) = 0;
  /// An optimizer step ended (methods that begin after some steps, as PowerSGD, count them). If it is never called,
  /// each reduction of a key counts as a step: too many when gradients are accumulated.
  virtual void step_done() {}
  /// Bytes that plain reductions of the gradients so far would have sent per rank, and bytes that were sent instead,
  /// both as launch::wire_bytes() counts. Zeros on one rank.
  virtual std::pair<std::int64_t, std::int64_t> bytes() const = 0;
  /// State that a checkpoint keeps (error feedback), by name. It is this rank's: ranks have different errors.
  virtual std::vector<std::pair<std::string, at::Tensor>> state() const { return {}; }
  /// Puts state() back, before the first reduce(). What does not fit (another number of ranks) begins anew at its first
  /// use. Of whole gradients a key names a bucket, so that the buckets are to be those of then
  /// (Sharded::set_gradient_order).
  virtual void restore(const std::vector<std::pair<std::string, at::Tensor>>& state) { static_cast<void>(state); }
};

/// The method; of `none` nullptr.
std::shared_ptr<Compression> make_compression(const layout::GradientCompression& asked);
/// The method of a description such as "powersgd:rank=2,start=1000" (layout/gradient_compression.h). Throws InputError.
std::shared_ptr<Compression> make_compression(std::string_view description);

}  // namespace tessera::parallel
