// RMSprop over all parameters in one pass. CPU float32 uses the kernel; everything else uses ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/rmsprop.h>
#include <tessera/optim/elementwise.h>

namespace tessera::optim {
namespace {

std::vector<StateKind> states_of(const RmspropOptions& options) {
  std::vector<StateKind> kinds = {{"square_avg"}};
  if (options.centered) kinds.push_back({"grad_avg"});
  if (options.momentum > 0) kinds.push_back({"momentum_buffer"});
  return kinds;
}

class Rmsprop final : public ElementwiseOptimizer {
 public:
  Rmsprop(std::vector<Slot> slots, const RmspropOptions& options, const CommonOptions& common)
      : ElementwiseOptimizer(std::move(slots), states_of(options), common), options_(options) {}

 private:
  void update_block(const Block& b, const float* gradient, const StepFactors& factors) override {
    float* average = options_.centered ? state_data(1, b) : nullptr;
    float* buffer = options_.momentum > 0 ? state_data(options_.centered ? 2 : 1, b) : nullptr;
    kernels::rmsprop(parameter_data(b), gradient, state_data(0, b), average, buffer, b.numel,
                     arguments(b.slot, factors));
  }

  /// Like torch/optim/rmsprop.py, _single_tensor_rmsprop, on any device.
  void update_slot(std::size_t i, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                   const StepFactors& factors) override {
    const kernels::RmspropArgs a = arguments(i, factors);
    const at::Tensor p = slot(i).parameter;
    const at::Tensor g = (gradient * a.gradient_scale).add_(p, a.weight_decay);
    states[0].mul_(a.alpha).addcmul_(g, g, 1 - a.alpha);
    at::Tensor spread = states[0];
    if (options_.centered) {
      states[1].lerp_(g, 1 - a.alpha);
      spread = states[0].addcmul(states[1], states[1], -1);
    }
    const at::Tensor denominator = spread.sqrt().add_(a.epsilon);
    if (options_.momentum == 0) {
      p.addcdiv_(g, denominator, -a.learning_rate);
      return;
    }
    const at::Tensor& buffer = states.back();
    buffer.mul_(a.momentum).addcdiv_(g, denominator);
    p.add_(buffer, -a.learning_rate);
  }

  kernels::RmspropArgs arguments(std::size_t i, const StepFactors& factors) const {
    return {.learning_rate = factors.learning_rate * slot(i).learning_rate_scale,
            .alpha = options_.alpha,
            .epsilon = options_.epsilon,
            .momentum = options_.momentum,
            .weight_decay = slot(i).weight_decay,
            .gradient_scale = factors.gradient_scale};
  }

  RmspropOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_rmsprop(std::vector<Slot> slots, const RmspropOptions& options,
                                        const CommonOptions& common) {
  if (!(options.alpha >= 0 && options.alpha < 1))
    throw InputError(concat("RMSprop: alpha = ", options.alpha, "; it must be in [0, 1)"));
  if (!(options.epsilon >= 0) || !(options.momentum >= 0))
    throw InputError(
        concat("RMSprop: epsilon = ", options.epsilon, ", momentum = ", options.momentum, "; none may be negative"));
  refuse_bf16(common, "RMSprop");
  return std::make_unique<Rmsprop>(std::move(slots), options, common);
}

}  // namespace tessera::optim
