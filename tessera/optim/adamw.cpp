// AdamW over all parameters in one pass: float32 by the kernel of the CPU or of the CUDA plug-in, anything else by
// ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/kernels/cpu/adamw.h>
#include <tessera/optim/fused.h>

#include <cmath>

namespace tessera::optim {
namespace {

class AdamW final : public FusedOptimizer {
 public:
  AdamW(std::vector<Slot> slots, const AdamWOptions& options)
      : FusedOptimizer(std::move(slots), {"exp_avg", "exp_avg_sq"}), options_(options) {}

 private:
  void update_block(const Block& b, const float* gradient, const StepFactors& factors) override {
    kernels::adamw(parameter_data(b), gradient, state_data(0, b), state_data(1, b), b.numel,
                   arguments(b.slot, factors));
  }

  void update_slot(std::size_t i, const at::Tensor& gradient, const StepFactors& factors) override {
    const at::Tensor p = slot(i).parameter;
    const kernels::AdamwArgs a = arguments(i, factors);
    if (p.is_cuda() && p.scalar_type() == at::kFloat)
      comm::backend_plugin("cuda").adamw(p.data_ptr<float>(), gradient.const_data_ptr<float>(),
                                         state_of(0, i).data_ptr<float>(), state_of(1, i).data_ptr<float>(), p.numel(),
                                         a);
    else
      generic_update(p, gradient, state_of(0, i), state_of(1, i), a);
  }

  kernels::AdamwArgs arguments(std::size_t i, const StepFactors& factors) const {
    return {.learning_rate = factors.learning_rate * slot(i).learning_rate_scale,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .epsilon = options_.epsilon,
            .weight_decay = slot(i).weight_decay,
            .gradient_scale = factors.gradient_scale,
            .step = steps()};
  }

  /// torch/optim/adam.py, _single_tensor_adam with decoupled decay, on any device.
  static void generic_update(const at::Tensor& p, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
                             const kernels::AdamwArgs& a) {
    const at::Tensor g = a.gradient_scale == 1 ? gradient : gradient * a.gradient_scale;
    const double correction1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
    const double correction2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
    p.mul_(1 - a.learning_rate * a.weight_decay);
    m.lerp_(g, 1 - a.beta1);
    v.mul_(a.beta2).addcmul_(g, g, 1 - a.beta2);
    p.addcdiv_(m, (v.sqrt() / std::sqrt(correction2)).add_(a.epsilon), -a.learning_rate / correction1);
  }

  AdamWOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<Slot> slots, const AdamWOptions& options) {
  if (!(options.beta1 >= 0 && options.beta1 < 1) || !(options.beta2 >= 0 && options.beta2 < 1) ||
      !(options.epsilon >= 0))
    throw InputError(concat("AdamW: beta1 = ", options.beta1, ", beta2 = ", options.beta2, ", epsilon = ",
                            options.epsilon, "; each beta must lie in [0, 1) and epsilon must not be negative"));
  return std::make_unique<AdamW>(std::move(slots), options);
}

}  // namespace tessera::optim
