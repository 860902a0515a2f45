#pragma once
/// \file
/// What every fused optimizer shares: one step is gradients, count, and the update of every slot that has a gradient.

#include <tessera/optim/flat_state.h>
#include <tessera/optim/optimizer.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::optim {

/// The numbers of one step, besides the slot's own.
struct StepFactors {
  double learning_rate, gradient_scale;
};

/// A kind of optimizer says how one block and how one slot is updated, and which tensors it keeps.
class FusedOptimizer : public Optimizer {
 public:
  void step(double learning_rate, double gradient_scale) final;
  std::vector<std::pair<std::string, at::Tensor>> state() const final { return state_.named(); }
  std::int64_t steps() const final { return steps_; }
  void set_steps(std::int64_t steps) final { steps_ = steps; }

 protected:
  /// `state_names`: see FlatState.
  FusedOptimizer(std::vector<Slot> slots, std::vector<std::string> state_names)
      : state_(std::move(slots), std::move(state_names)) {}

  /// float32 on the CPU: called in parallel. `gradient` points at the block's first element.
  virtual void update_block(const Block& block, const float* gradient, const StepFactors& factors) = 0;
  /// Any other dtype or device. `gradient` is contiguous.
  virtual void update_slot(std::size_t slot, const at::Tensor& gradient, const StepFactors& factors) = 0;

  const Slot& slot(std::size_t i) const { return state_.slots()[i]; }
  const at::Tensor& state_of(std::size_t k, std::size_t i) const { return state_.view(k, i); }
  float* parameter_data(const Block& b) const { return slot(b.slot).parameter.data_ptr<float>() + b.offset; }
  float* state_data(std::size_t k, const Block& b) const { return state_of(k, b.slot).data_ptr<float>() + b.offset; }

 private:
  FlatState state_;
  std::int64_t steps_ = 0;
};

}  // namespace tessera::optim
