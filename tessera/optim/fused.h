#pragma once
/// \file
/// Common base of all optimizers: a step gathers gradients, counts itself, updates, and bumps the versions of the
/// written tensors.

#include <tessera/kernels/cpu/bf16_rounding.h>
#include <tessera/kernels/cuda/step_scalars.h>
#include <tessera/optim/flat_state.h>
#include <tessera/optim/optimizer.h>

#include <string>
#include <utility>
#include <vector>

namespace tessera::optim {

/// The values of one step, in addition to the slot's own.
struct StepFactors {
  double learning_rate, gradient_scale;
  const kernels::cuda::StepScalars* scalars = nullptr;  ///< on the device; null: not used
};

class FusedOptimizer : public Optimizer {
 public:
  void step(double learning_rate, double gradient_scale) final { take_step({learning_rate, gradient_scale}); }
  void step_by(const at::Tensor& scalars, double learning_rate) final;
  void set_learning_rate_scales(const std::vector<double>& scales) final { state_.set_learning_rate_scales(scales); }
  std::vector<std::pair<std::string, at::Tensor>> state() const final { return state_.named(); }
  std::vector<EncodedState> encoded_states() const final { return state_.encoded(); }
  bool is_replicated(const std::string& name) const final { return state_.is_replicated(name); }
  std::int64_t steps() const final { return steps_; }
  void set_steps(std::int64_t steps) final { steps_ = steps; }

 protected:
  FusedOptimizer(std::vector<Slot> slots, std::vector<StateKind> kinds, const CommonOptions& common)
      : common_(common), state_(std::move(slots), std::move(kinds), common) {}

  /// Updates all slots once; steps() already counts this step. `gradients`: FlatState::gradients().
  virtual void update(const std::vector<at::Tensor>& gradients, const StepFactors& factors) = 0;

  const FlatState& flat() const { return state_; }
  const CommonOptions& common() const { return common_; }
  std::size_t slot_count() const { return state_.slots().size(); }
  const Slot& slot(std::size_t i) const { return state_.slots()[i]; }
  const at::Tensor& state_of(std::size_t k, std::size_t i) const { return state_.view(k, i); }
  float* parameter_data(const Block& b) const { return slot(b.slot).parameter.data_ptr<float>() + b.offset; }
  /// float32, or bfloat16 as std::uint16_t.
  template <class T = float>
  T* state_data(std::size_t k, const Block& b) const {
    return static_cast<T*>(state_of(k, b.slot).data_ptr()) + b.offset;
  }

 private:
  void take_step(const StepFactors& factors);

  CommonOptions common_;
  FlatState state_;
  std::int64_t steps_ = 0;
};

/// Throws InputError if bf16 or 8-bit states are requested from an optimizer that does not support them.
void refuse_bf16(const CommonOptions& common, const char* optimizer);
void refuse_eight_bits(const CommonOptions& common, const char* optimizer);

}  // namespace tessera::optim
