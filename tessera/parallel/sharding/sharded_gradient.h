#pragma once
/// \file
/// The flat gradient of ZeRO and FSDP. The buffer [padded] is taken from the context's pool at the first gradient and
/// returned after the reduction, whose result [padded / S] is added to the sum: this rank's shard, owned here. If
/// nothing is reduced over shards (S = 1) the buffer's own memory is the result, and as long as the sum is empty, the
/// sum itself is the buffer.
/// Parts of the sum are grad() of the local parameters; grad() of the module's own parameters is a placeholder
/// (MovedGradients).

#include <tessera/parallel/sharding/flat_gradient.h>
#include <tessera/parallel/sharding/flat_group.h>
#include <tessera/parallel/sharding/local_parts.h>
#include <tessera/parallel/sharding/moved_gradients.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace tessera::parallel {

class ShardedGradient final : public FlatGradient {
 public:
  /// `group` and `context` must outlive this object. `reduce_dtype`: the type that is reduced; empty: fp32 (fp64 is
  /// kept). `first_index`: index of its first member among the reducer's parameters.
  ShardedGradient(ShardingContext& context, const FlatGroup& group, std::optional<at::ScalarType> reduce_dtype,
                  bool fixed_order, std::size_t first_index);

  bool needs_memory() const override { return !buffer_.defined() && !fills_sum(); }
  void begin_backward() override;
  bool take_gradient(std::size_t m, bool check_finite) override;
  GradientMessage prepare_reduction() override;
  void finish_reduction() override;
  void show(std::size_t m, bool used) override;
  void end_backward(bool was_reduced) override;
  void abort_backward() noexcept override;
  void zero_grad() override;
  void scale_unreduced(double factor) override;
  std::int64_t shard_bytes() const override;

 private:
  bool nothing_reduced() const;
  bool fills_sum() const;
  void take_buffers();
  void give_buffers();
  void leave_sum();
  void prepare_sum();
  void zero_padding();

  ShardingContext& context_;
  const FlatGroup& group_;
  at::ScalarType reduce_dtype_;
  at::Tensor result_ = {};  ///< [padded / S], of the current reduction; may be the sum or the buffer itself
  std::unique_ptr<LocalParts> locals_ = {};     ///< parts of the sum, if other ranks hold other parts
  std::unique_ptr<MovedGradients> moved_ = {};  ///< grad() of the module's own parameters between backward passes
};

}  // namespace tessera::parallel
