#pragma once
/// \file
/// The flat gradient of a unit whose reduced gradients lie in shards (ZeRO-1/2/3, FSDP, HSDP):
///
///   first gradient: buffer from the pool -> gradients are copied in and freed -> reduce_scatter -> added to the
///   shard's sum, whose parts are the local parameters' grad(); the buffer goes back to the pool

#include <tessera/parallel/sharding/flat_gradient.h>
#include <tessera/parallel/sharding/flat_group.h>
#include <tessera/parallel/sharding/moved_gradients.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

class ShardedGradient final : public FlatGradient {
 public:
  /// `group` and `context` outlive this. `reduce_dtype`: on the wire; empty: fp32 (fp64 stays what it is).
  /// `first_index`: of its first member among the reducer's parameters.
  ShardedGradient(ShardingContext& context, FlatGroup& group, std::optional<at::ScalarType> reduce_dtype,
                  bool fixed_order, std::size_t first_index);

  std::string name() const override { return "unit '" + group_.name() + "'"; }
  void begin(bool reduces) override;
  bool take(std::size_t m, bool check_finite) override;
  bool gives(std::size_t m) const override { return filled_[m]; }
  bool needs_memory() const override { return !buffer_.defined(); }
  Passing close() override;
  void reduced() override;
  void show(std::size_t m, bool used) override;
  void end(bool was_reduced) override;
  void fail() noexcept override;
  void zero_grad() override;
  void scale_unreduced(double factor) override;
  std::int64_t shard_bytes() const override { return sum_.defined() ? static_cast<std::int64_t>(sum_.nbytes()) : 0; }

 private:
  void take_buffer();
  void prepare_sum();
  void zero_what_does_not_count();
  void forget_gradients();

  ShardingContext& context_;
  FlatGroup& group_;
  at::ScalarType wire_dtype_;
  bool fixed_order_;
  at::Tensor buffer_;         ///< [padded], wire dtype
  std::vector<bool> filled_;  ///< members with contents, also of paused backwards
  at::Tensor sum_;            ///< [padded / S]: reduced gradients
  std::vector<bool> in_sum_;  ///< members whose part of the sum counts
  at::Tensor result_;         ///< [padded / S] of the reduction under way
  std::vector<CompressedSegment> segments_;
  std::unique_ptr<MovedGradients> moved_;  ///< signs in the module's own parameters between backwards
};

}  // namespace tessera::parallel
