// AdamW over all parameters in one pass: float32 by the kernel of the CPU or of the CUDA plug-in, anything else by
// ATen's operators.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/comm/backend_plugin.h>
#include <tessera/kernels/cpu/adamw.h>
#include <tessera/optim/flat_state.h>

#include <cmath>

namespace tessera::optim {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(std::vector<Slot> slots, const AdamWOptions& options)
      : options_(options), state_(std::move(slots), {"exp_avg", "exp_avg_sq"}) {}

  void step(double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> gradients = state_.gradients();
    ++steps_;
    if (state_.has_kernels()) {
      state_.for_each_block(gradients, [&](const Block& b) {
        kernels::adamw(state_.slots()[b.slot].parameter.data_ptr<float>() + b.offset,
                       gradients[b.slot].const_data_ptr<float>() + b.offset,
                       state_.view(0, b.slot).data_ptr<float>() + b.offset,
                       state_.view(1, b.slot).data_ptr<float>() + b.offset, b.numel,
                       arguments(b.slot, learning_rate, gradient_scale));
      });
      return;
    }
    if (on_cuda()) {
      const auto kernel = comm::backend_plugin("cuda").adamw;
      for (std::size_t i = 0; i < gradients.size(); ++i) {
        if (!gradients[i].defined()) continue;
        const at::Tensor p = state_.slots()[i].parameter;
        kernel(p.data_ptr<float>(), gradients[i].const_data_ptr<float>(), state_.view(0, i).data_ptr<float>(),
               state_.view(1, i).data_ptr<float>(), p.numel(), arguments(i, learning_rate, gradient_scale));
      }
      return;
    }
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) generic_step(i, gradients[i], arguments(i, learning_rate, gradient_scale));
  }

  std::vector<std::pair<std::string, at::Tensor>> state() const override { return state_.named(); }
  std::int64_t steps() const override { return steps_; }
  void set_steps(std::int64_t steps) override { steps_ = steps; }

 private:
  bool on_cuda() const {
    const auto& slots = state_.slots();
    return !slots.empty() && slots[0].parameter.is_cuda() && slots[0].parameter.scalar_type() == at::kFloat;
  }

  kernels::AdamwArgs arguments(std::size_t slot, double learning_rate, double gradient_scale) const {
    const Slot& s = state_.slots()[slot];
    return {.learning_rate = learning_rate * s.learning_rate_scale,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .epsilon = options_.epsilon,
            .weight_decay = s.weight_decay,
            .gradient_scale = gradient_scale,
            .step = steps_};
  }

  /// torch/optim/adam.py, _single_tensor_adam with decoupled decay, on any device.
  void generic_step(std::size_t i, const at::Tensor& gradient, const kernels::AdamwArgs& a) {
    at::Tensor p = state_.slots()[i].parameter, m = state_.view(0, i), v = state_.view(1, i);
    const at::Tensor g = a.gradient_scale == 1 ? gradient : gradient * a.gradient_scale;
    const double correction1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
    const double correction2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
    p.mul_(1 - a.learning_rate * a.weight_decay);
    m.lerp_(g, 1 - a.beta1);
    v.mul_(a.beta2).addcmul_(g, g, 1 - a.beta2);
    p.addcdiv_(m, (v.sqrt() / std::sqrt(correction2)).add_(a.epsilon), -a.learning_rate / correction1);
  }

  AdamWOptions options_;
  FlatState state_;
  std::int64_t steps_ = 0;
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
