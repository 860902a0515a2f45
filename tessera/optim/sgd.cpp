// SGD over all parameters in one pass: CPU float32 by the kernel, anything else by ATen's operators.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/sgd.h>
#include <tessera/optim/flat_state.h>

namespace tessera::optim {
namespace {

class Sgd final : public Optimizer {
 public:
  Sgd(std::vector<Slot> slots, const SgdOptions& options)
      : options_(options),
        state_(std::move(slots),
               options.momentum == 0 ? std::vector<std::string>{} : std::vector<std::string>{"momentum_buffer"}) {}

  void step(double learning_rate, double gradient_scale) override {
    const at::NoGradGuard no_grad;
    const std::vector<at::Tensor> gradients = state_.gradients();
    ++steps_;
    if (state_.has_kernels()) {
      state_.for_each_block(gradients, [&](const Block& b) {
        float* momentum = options_.momentum == 0 ? nullptr : state_.view(0, b.slot).data_ptr<float>() + b.offset;
        kernels::sgd(state_.slots()[b.slot].parameter.data_ptr<float>() + b.offset,
                     gradients[b.slot].const_data_ptr<float>() + b.offset, momentum, b.numel,
                     arguments(b.slot, learning_rate, gradient_scale));
      });
      return;
    }
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i].defined()) generic_step(i, gradients[i], arguments(i, learning_rate, gradient_scale));
  }

  std::vector<std::pair<std::string, at::Tensor>> state() const override { return state_.named(); }
  std::int64_t steps() const override { return steps_; }
  void set_steps(std::int64_t steps) override { steps_ = steps; }

 private:
  // first_step stays false: torch starts the buffer with the gradient, and momentum * 0 + g is the gradient.
  kernels::SgdArgs arguments(std::size_t slot, double learning_rate, double gradient_scale) const {
    const Slot& s = state_.slots()[slot];
    return {.learning_rate = learning_rate * s.learning_rate_scale,
            .momentum = options_.momentum,
            .nesterov = options_.nesterov,
            .weight_decay = s.weight_decay,
            .gradient_scale = gradient_scale};
  }

  /// torch/optim/sgd.py, _single_tensor_sgd, on any device.
  void generic_step(std::size_t i, const at::Tensor& gradient, const kernels::SgdArgs& a) {
    at::Tensor p = state_.slots()[i].parameter;
    at::Tensor g = (gradient * a.gradient_scale).add_(p, a.weight_decay);
    if (a.momentum != 0) {
      at::Tensor b = state_.view(0, i);
      b.mul_(a.momentum).add_(g);
      g = a.nesterov ? g.add_(b, a.momentum) : b;
    }
    p.add_(g, -a.learning_rate);
  }

  SgdOptions options_;
  FlatState state_;
  std::int64_t steps_ = 0;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<Slot> slots, const SgdOptions& options) {
  if (!(options.momentum >= 0))
    throw InputError(concat("SGD: momentum = ", options.momentum, "; it must not be negative"));
  if (options.nesterov && options.momentum == 0)
    throw InputError("SGD: nesterov needs a momentum above 0, but momentum = 0");
  return std::make_unique<Sgd>(std::move(slots), options);
}

}  // namespace tessera::optim
