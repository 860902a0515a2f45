#pragma once
/// \file
/// A flat gradient: the gradients of several parameters side by side in one buffer, reduced together. Two forms behind
/// one interface, by which the gradient reducer drives them:
///
///   WholeGradient (whole_gradient.h)       nothing is sharded (DDP): every rank gets the whole reduced gradient
///   ShardedGradient (sharded_gradient.h)   ZeRO, FSDP: every rank gets its shard of it
///
/// Both accumulate over backwards as one process does: what was not reduced yet (paused backwards) joins the next
/// reduction, and what was reduced is added to. The calls of a backward, in their order:
///
///   begin_backward      looks at grad() of every member: zeroed, replaced, or the reduced gradient to add to
///   take_gradient       per member, when autograd has its gradient
///   prepare_reduction   no gradient comes any more: the message for GradientReduction, which overwrites its tensors
///   finish_reduction    they hold the result
///   show                per member: grad() has the result
///   end_backward        grad() is what the user is to see, reduced or not
///
/// The thread that runs the backward calls all this under the engine's mutex; nothing here locks.

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
    at::Tensor parameter;                ///< the module's own; autograd writes its grad()
    std::size_t index = 0;               ///< among all parameters of the reducer
    at::Tensor shown;                    ///< its grad() is the result: the parameter itself, or this rank's part of it
    std::int64_t offset = 0, numel = 0;  ///< elements of the buffer
    at::Tensor result = {};              ///< the reduced gradient, a view of the memory that keeps it
    bool given = false;                  ///< this rank has something that was not reduced yet
    bool reduced = false;                ///< `result` holds reduced gradients, to which the next are added
    bool hidden = false;                 ///< grad() was taken away for the backward; end_backward() puts it back
    // What the gradient must be, as it was when the module was wrapped.
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

  /// The next take_gradient() or prepare_reduction() takes memory from the pool.
  virtual bool needs_memory() const = 0;

  virtual void begin_backward() = 0;
  /// Takes the gradient that autograd left in grad() of member m's parameter. False when it is known not to be finite.
  virtual bool take_gradient(std::size_t m, bool check_finite) = 0;
  /// The message; members that have nothing to give are zero in it.
  virtual GradientMessage prepare_reduction() = 0;
  virtual void finish_reduction() = 0;
  /// `used`: some rank gave a gradient for member m. Without one, grad() stays what it was before the backward.
  virtual void show(std::size_t m, bool used) = 0;
  virtual void end_backward(bool was_reduced) = 0;
  /// The backward failed: every gradient is forgotten. Memory in which a reduction may still be under way is let go.
  virtual void abort_backward() noexcept = 0;

  virtual void zero_grad() = 0;
  /// Multiplies gradients of paused backwards that grad() does not show.
  virtual void scale_unreduced(double factor) = 0;
  /// Bytes of reduced gradients that this owns and the parameters' own grad() does not.
  virtual std::int64_t shard_bytes() const = 0;

 protected:
  FlatGradient(std::string name, std::size_t unit, GradientGroups groups, bool fixed_order);

  /// The gradient in grad() of the member's parameter joins its place in the buffer; grad() is undefined afterwards.
  bool add_to_buffer(Member& member, bool check_finite);
  void zero_in_buffer(const Member& member);
  void zero_results_without_reduction();
  void forget_gradients();
  static void forget(Member& member);
  /// The member's elements of `flat`, in the sizes and strides of its parameter.
  at::Tensor place_of(const at::Tensor& flat, const Member& member) const;

  std::string name_;
  std::size_t unit_;
  GradientGroups groups_;
  std::vector<Member> members_ = {};
  std::vector<CompressedSegment> segments_ = {};  ///< the members' places in the buffer
  bool fixed_order_;
  at::Tensor buffer_ = {};                      ///< flat, of the type that is reduced: what this rank gives
  std::vector<at::Tensor> later_sources_ = {};  ///< GradientGroups::per_source: each laid out like the buffer
  at::Tensor sum_ = {};                         ///< reduced gradients; results are views of it
};

/// Whether `grad` is the memory of `place`: optimizer.zero_grad(false) replaces grad() by a detached alias of it.
bool is_same_memory(const at::Tensor& grad, const at::Tensor& place);

}  // namespace tessera::parallel
