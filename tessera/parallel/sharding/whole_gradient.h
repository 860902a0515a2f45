#pragma once
/// \file
/// The flat gradient of strategies that shard nothing (DDP): a bucket, whose buffer is allocated once. After a
/// reduction grad() of each parameter is a view of
///
///   the buffer    into which autograd then accumulates, so that nothing is copied; sum_ is the buffer
///   the sum       in fixed order: a second buffer, to which each micro-batch's gradients are added
///
/// After the gradients the buffer has two counters per member, reduced with them: the number of ranks that used it, and
/// of ranks that did not.

#include <tessera/parallel/sharding/flat_gradient.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

class WholeGradient final : public FlatGradient {
 public:
  /// `members` are laid out in this order, which sets their offsets; values of their `result` and grad() are copied
  /// into the new memory. `shown` is the parameter itself.
  WholeGradient(std::string name, GradientGroups groups, std::vector<Member> members, comm::Reduction reduction,
                bool fixed_order);

  bool needs_memory() const override { return false; }
  void begin_backward() override;
  bool take_gradient(std::size_t m, bool check_finite) override;
  GradientMessage prepare_reduction() override;
  void finish_reduction() override;
  void show(std::size_t m, bool used) override;
  void end_backward(bool was_reduced) override;
  void abort_backward() noexcept override;
  void zero_grad() override { forget_gradients(); }
  void scale_unreduced(double) override {}  // all gradients are in grad()
  std::int64_t shard_bytes() const override { return 0; }

  /// After finish_reduction(): whether any rank used member m, and whether any did not.
  std::pair<bool, bool> used_and_missed(std::size_t m) const;
  /// Releases the members, with `result` if grad() still shows it. No function may be called afterwards.
  std::vector<Member> release_members();

 private:
  bool holds_reduced(const Member& member) const;

  /// Outside of fixed order, whether this rank's contribution includes the gradients reduced before: for a mean, true
  /// on every rank; for a sum, on one rank.
  const bool adds_up_;
  std::vector<float> counts_;  ///< [used..., missed...], numbers of ranks after the reduction
};

/// Buckets, one per list of indices into `members`, whose gradients are moved into them. `groups.expert_replicas`
/// applies to lists of parameters that `shared` (by index; empty: none) selects, `groups.per_source` to the others.
std::vector<std::unique_ptr<WholeGradient>> whole_gradients(const GradientGroups& groups,
                                                            const std::vector<bool>& shared,
                                                            std::vector<FlatGradient::Member> members,
                                                            const std::vector<std::vector<std::size_t>>& lists,
                                                            comm::Reduction reduction, bool fixed_order);

}  // namespace tessera::parallel
