#pragma once
/// \file
/// A flat gradient: the gradients of several parameters side by side in one buffer, reduced together. This header: what
/// the reducer sees of one; where the memory lies is its own business (whole_gradients.h, sharded_gradient.h).

#include <ATen/core/Tensor.h>

#include <tessera/parallel/sharding/gradient_passage.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tessera::parallel {

class FlatGradient {
 public:
  struct Member {
    std::string name;
    at::Tensor parameter;   ///< the module's own
    std::size_t index = 0;  ///< among all parameters of the reducer
    // What the gradient must be.
    at::ScalarType dtype;
    c10::Device device;
    std::vector<std::int64_t> sizes;
  };

  explicit FlatGradient(GradientGroups groups) : groups_(std::move(groups)) {}
  virtual ~FlatGradient() = default;
  FlatGradient(const FlatGradient&) = delete;
  FlatGradient& operator=(const FlatGradient&) = delete;

  const GradientGroups& groups() const { return groups_; }
  const std::vector<Member>& members() const { return members_; }
  std::size_t unit() const { return unit_; }
  virtual std::string name() const = 0;  ///< for error texts: "bucket 3", "unit 'h.0'"

  /// A backward begins; `reduces`: it will end in a reduction.
  virtual void begin(bool reduces) = 0;
  /// Takes the gradient that autograd left in grad() of member m's parameter. False when it is known not to be finite.
  virtual bool take(std::size_t m, bool check_finite) = 0;
  /// Whether this rank has something to give for member m, of this backward or of paused ones.
  virtual bool gives(std::size_t m) const = 0;
  /// The next take() needs memory from the pool.
  virtual bool needs_memory() const { return false; }
  /// No gradient comes any more: members that have nothing to give are zero. What is to be reduced.
  virtual Passing close() = 0;
  /// The passage has ended.
  virtual void reduced() = 0;
  /// How many ranks gave something for member m travels along (counts() then); else the reducer asks for it.
  virtual bool counts_travel() const { return false; }
  /// Whether any rank gave something for member m, and whether any rank did not. After reduced().
  virtual std::pair<bool, bool> counts(std::size_t) const { return {true, false}; }
  /// Member m's reduced gradient becomes grad() where the user looks for it. `used`: a rank gave something.
  virtual void show(std::size_t m, bool used) = 0;
  /// The backward has ended, with a reduction or without.
  virtual void end(bool was_reduced) = 0;
  /// The backward failed: every gradient is forgotten. Memory in which a reduction may still be under way is let go.
  virtual void fail() noexcept = 0;
  virtual void zero_grad() = 0;
  /// What paused backwards have left unreduced, times `factor`.
  virtual void scale_unreduced(double factor) { static_cast<void>(factor); }
  /// Bytes of reduced gradients that are no memory of the parameters' own grad().
  virtual std::int64_t shard_bytes() const { return 0; }

 protected:
  GradientGroups groups_;
  std::vector<Member> members_;
  std::size_t unit_ = 0;
};

}  // namespace tessera::parallel
