#pragma once
/// \file
/// A flat gradient: the gradients of several parameters, one after another in one buffer, reduced together. Two forms
/// with one interface, through which the gradient reducer drives them:
///
///   WholeGradient (whole_gradient.h)       nothing is sharded (DDP): every rank gets the whole reduced gradient
///   ShardedGradient (sharded_gradient.h)   ZeRO, FSDP: every rank gets its shard of it
///
/// Both accumulate over backward passes as one process does: gradients that were not reduced yet (paused passes) are
/// part of the next reduction, and its result is added to gradients reduced before. The calls of a backward, in order:
///
///   begin_backward      checks grad() of every member: zeroed, replaced, or the reduced gradient to add to
///   take_gradient       per member, when autograd has computed its gradient
///   prepare_reduction   no more gradients will come: returns the message for GradientReduction, which overwrites it
///   finish_reduction    the message holds the result
///   show                per member: sets grad() to the result
///   end_backward        grad() is as the user must see it, reduced or not
///
/// The thread that runs the backward makes all these calls under the engine's mutex; no locks here.

#include <ATen/core/Tensor.h>

#include <tessera/parallel/sharding/gradient_reduction.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tessera::parallel {

class FlatGradient {
 public:
  struct Member {
    std::string name;
    at::Tensor parameter;   ///< the module's parameter, whose grad() autograd writes
    std::size_t index = 0;  ///< index among all parameters of the reducer
    at::Tensor shown;       ///< the tensor whose grad() shows the result: the parameter, or this rank's part of it
    std::int64_t offset = 0, numel = 0;  ///< position in the buffer, in elements
    at::Tensor result = {};              ///< the reduced gradient, a view of the memory that stores it
    bool given = false;                  ///< this rank has an unreduced gradient
    bool reduced = false;                ///< `result` holds reduced gradients, to which later ones are added
    bool hidden = false;                 ///< grad() was removed for the backward; end_backward() restores it
    // The gradient's required properties, recorded when the module was wrapped.
    at::ScalarType dtype = parameter.scalar_type();
    c10::Device device = parameter.device();
    std::vector<std::int64_t> sizes = parameter.sizes().vec();
    std::vector<std::int64_t> strides = parameter.strides().vec();
  };

  virtual ~FlatGradient() = default;
  FlatGradient(const FlatGradient&) = delete;
  FlatGradient& operator=(const FlatGradient&) = delete;

  const std::string& name() const { return name_; }  ///< for error texts: "bucket 3", "unit 'h.0'"
  std::size_t unit() const { return unit_; }
  const GradientGroups& groups() const { return groups_; }
  const std::vector<Member>& members() const { return members_; }

  /// Whether the next take_gradient() or prepare_reduction() will take memory from the pool.
  virtual bool needs_memory() const = 0;

  virtual void begin_backward() = 0;
  /// Takes the gradient that autograd left in grad() of member m's parameter. Returns false when it is known to be
  /// non-finite.
  virtual bool take_gradient(std::size_t m, bool check_finite) = 0;
  /// Returns the message, in which members without a gradient are zero.
  virtual GradientMessage prepare_reduction() = 0;
  virtual void finish_reduction() = 0;
  /// `used`: some rank has a gradient for member m. Otherwise grad() stays as it was before the backward.
  virtual void show(std::size_t m, bool used) = 0;
  virtual void end_backward(bool was_reduced) = 0;
  /// Called when the backward failed: all gradients are dropped. Memory that a reduction may still be using is
  /// released.
  virtual void abort_backward() noexcept = 0;

  virtual void zero_grad() = 0;
  /// Multiplies the gradients of paused backward passes that grad() does not show.
  virtual void scale_unreduced(double factor) = 0;
  /// Bytes of reduced gradients owned by this object and not by the parameters' own grad().
  virtual std::int64_t shard_bytes() const = 0;

 protected:
  FlatGradient(std::string name, std::size_t unit, GradientGroups groups, bool fixed_order);

  /// Adds the gradient in grad() of the member's parameter to its place in the buffer; grad() is undefined afterwards.
  bool add_to_buffer(Member& member, bool check_finite);
  void zero_in_buffer(const Member& member);
  void zero_results_without_reduction();
  void forget_gradients();
  static void forget(Member& member);
  /// The member's elements of `flat`, with the sizes and strides of its parameter.
  at::Tensor place_of(const at::Tensor& flat, const Member& member) const;

  std::string name_;
  std::size_t unit_;
  GradientGroups groups_;
  std::vector<Member> members_ = {};
  std::vector<CompressedSegment> segments_ = {};  ///< the members' positions in the buffer
  bool fixed_order_;
  at::Tensor buffer_ = {};                      ///< flat, of the type that is reduced: this rank's gradients
  std::vector<at::Tensor> later_sources_ = {};  ///< GradientGroups::per_source: each laid out like the buffer
  at::Tensor sum_ = {};                         ///< reduced gradients; results are views of it
};

/// Whether `grad` uses the memory of `place`: optimizer.zero_grad(false) replaces grad() by a detached alias of it.
bool is_same_memory(const at::Tensor& grad, const at::Tensor& place);

}  // namespace tessera::parallel
