#pragma once
/// \file
/// A flat gradient: the gradients of several parameters side by side in one buffer, reduced together. Two forms:
///
///   whole (DDP)              the buffer stays; after a reduction grad() of each parameter is a view of it, or in fixed
///                            order of a sum that lies beside it
///   sharded (ZeRO, FSDP)     the buffer comes from the pool with the first gradient and goes back to it; what is
///                            reduced is added to this rank's shard of the sum, whose parts are the local parameters'
///                            grad()
///
/// Both accumulate over backwards as one process does: what was not reduced yet (paused backwards) joins the next
/// reduction, and what was reduced is added to.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/sharding/flat_group.h>
#include <tessera/parallel/sharding/gradient_reduction.h>
#include <tessera/parallel/sharding/local_parts.h>
#include <tessera/parallel/sharding/moved_gradients.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

class FlatGradient {
 public:
  struct Member {
    std::string name;
    at::Tensor parameter;                ///< the module's own
    std::size_t index = 0;               ///< among all parameters of the reducer
    at::Tensor shown;                    ///< its grad() is the result: the parameter itself, or this rank's part of it
    std::int64_t offset = 0, numel = 0;  ///< in the buffer
    at::Tensor result = {};              ///< where the reduced gradient lies
    bool given = false;                  ///< this rank has something that was not reduced yet
    bool reduced = false;                ///< grad() of `shown` holds reduced gradients, to which the next are added
    bool hidden = false;                 ///< during a backward: end() is to make grad() visible again
    // What the gradient must be, as it was when the module was wrapped.
    at::ScalarType dtype = parameter.scalar_type();
    c10::Device device = parameter.device();
    std::vector<std::int64_t> sizes = parameter.sizes().vec();
    std::vector<std::int64_t> strides = parameter.strides().vec();
  };

  /// Whole. `members` lie in the buffer in this order; those with a result keep it: it is copied.
  FlatGradient(std::string name, GradientGroups groups, std::vector<Member> members, comm::Reduction reduction,
               bool fixed_order);
  /// Sharded. `group` and `context` outlive this. `reduce_dtype`: on the wire; empty: fp32 (fp64 stays what it is).
  /// `first_index`: of its first member among the reducer's parameters.
  FlatGradient(ShardingContext& context, FlatGroup& group, std::optional<at::ScalarType> reduce_dtype, bool fixed_order,
               std::size_t first_index);
  FlatGradient(const FlatGradient&) = delete;
  FlatGradient& operator=(const FlatGradient&) = delete;

  bool whole() const { return group_ == nullptr; }
  const GradientGroups& groups() const { return groups_; }
  const std::vector<Member>& members() const { return members_; }
  std::size_t unit() const { return group_ == nullptr ? 0 : group_->unit(); }
  const std::string& name() const { return name_; }  ///< for error texts: "bucket 3", "unit 'h.0'"
  /// The next take() needs memory from the pool.
  bool needs_memory() const { return !buffer_.defined(); }

  /// A backward begins.
  void begin();
  /// Takes the gradient that autograd left in grad() of member m's parameter. False when it is known not to be finite.
  bool take(std::size_t m, bool check_finite);
  /// No gradient comes any more: members that have nothing to give are zero. What is to be reduced.
  GradientMessage close();
  /// The reduction has ended.
  void reduced();
  /// Whole only, after reduced(): whether any rank gave something for member m, and whether any rank did not.
  std::pair<bool, bool> used_and_missed(std::size_t m) const;
  /// Member m's reduced gradient becomes grad() where the user looks for it. `used`: a rank gave something.
  void show(std::size_t m, bool used);
  /// The backward has ended, with a reduction or without.
  void end(bool was_reduced);
  /// The backward failed: every gradient is forgotten. Memory in which a reduction may still be under way is let go.
  void fail() noexcept;
  void zero_grad();
  /// What paused backwards have left unreduced and out of sight, times `factor`.
  void scale_unreduced(double factor);
  /// Bytes of reduced gradients that are no memory of the parameters' own grad().
  std::int64_t shard_bytes() const;
  /// Copies of the members in whose grad() a result lies no longer have one.
  std::vector<Member> release_members();

 private:
  void take_buffer();
  void give_buffers();
  void take_later_sources(const Member& member);
  void prepare_sum();
  void zero_what_does_not_count();
  void forget(Member& member);
  at::Tensor place_of(const at::Tensor& flat, const Member& member) const;

  std::string name_;
  GradientGroups groups_;
  std::vector<Member> members_;
  bool fixed_order_;
  bool in_place_ = false;  ///< the result is the buffer itself
  bool adds_up_ = true;    ///< in place: this rank's share of the next reduction contains what was reduced before
  at::Tensor buffer_;      ///< [padded], in the type that travels; whole: two counters per member follow
  std::vector<at::Tensor>
      later_sources_;               ///< laid out like the buffer: of the micro-batches that follow, in fixed order
  at::Tensor sum_;                  ///< whole: laid out like the buffer; sharded: [padded / S]
  at::Tensor result_;               ///< sharded: [padded / S] of the reduction under way
  std::vector<float> counts_ = {};  ///< whole: [used..., missed...], numbers of ranks after the reduction
  std::vector<CompressedSegment> segments_ = {};
  // Sharded only.
  ShardingContext* context_ = nullptr;
  FlatGroup* group_ = nullptr;
  at::ScalarType wire_dtype_ = at::kFloat;
  std::unique_ptr<LocalParts> locals_ = {};     ///< parts of the sum's memory, where other ranks hold other parts
  std::unique_ptr<MovedGradients> signs_ = {};  ///< in the module's own parameters between backwards
};

/// DDP's flat gradients, one per list of indices into `members`; what `old` holds moves there. `groups.expert_replicas`
/// is for lists of parameters that `shared` (by index; empty: none) names, `groups.per_source` for the others.
std::vector<std::unique_ptr<FlatGradient>> whole_gradients(const GradientGroups& groups,
                                                           const std::vector<bool>& shared,
                                                           std::vector<FlatGradient::Member> members,
                                                           const std::vector<std::vector<std::size_t>>& lists,
                                                           comm::Reduction reduction, bool fixed_order);

}  // namespace tessera::parallel
