// SGD over all parameters in one pass. CPU float32 uses the kernel; everything else uses ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/sgd.h>
#include <tessera/optim/elementwise.h>

namespace tessera::optim {
namespace {

// The momentum buffer starts as zeros: torch starts it with the gradient, and momentum * 0 + g is the gradient.
class Sgd final : public ElementwiseOptimizer {
 public:
  Sgd(std::vector<Slot> slots, const SgdOptions& options, const CommonOptions& common)
      : ElementwiseOptimizer(
            std::move(slots),
            options.momentum == 0 ? std::vector<StateKind>{} : std::vector<StateKind>{{"momentum_buffer"}}, common),
        options_(options) {}

 private:
  void update_block(const Block& b, const float* gradient, const StepFactors& factors) override {
    const kernels::SgdArgs a = arguments(b.slot, factors);
    if (options_.momentum == 0)
      kernels::sgd(parameter_data(b), gradient, nullptr, b.numel, a);
    else if (common().bf16_state)
      kernels::sgd_bf16(parameter_data(b), gradient, state_data<std::uint16_t>(0, b), b.numel, a, rounding(b));
    else
      kernels::sgd(parameter_data(b), gradient, state_data(0, b), b.numel, a);
  }

  /// Like torch/optim/sgd.py, _single_tensor_sgd, on any device.
  void update_slot(std::size_t i, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                   const StepFactors& factors) override {
    const kernels::SgdArgs a = arguments(i, factors);
    const at::Tensor p = slot(i).parameter;
    at::Tensor g = (gradient * a.gradient_scale).add_(p, a.weight_decay);
    if (a.momentum != 0) {
      const at::Tensor& b = states[0];
      b.mul_(a.momentum).add_(g);
      g = a.nesterov ? g.add_(b, a.momentum) : b;
    }
    p.add_(g, -a.learning_rate);
  }

  kernels::SgdArgs arguments(std::size_t i, const StepFactors& factors) const {
    return {.learning_rate = factors.learning_rate * slot(i).learning_rate_scale,
            .momentum = options_.momentum,
            .nesterov = options_.nesterov,
            .weight_decay = slot(i).weight_decay,
            .gradient_scale = factors.gradient_scale};
  }

  SgdOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(std::vector<Slot> slots, const SgdOptions& options, const CommonOptions& common) {
  if (!(options.momentum >= 0))
    throw InputError(concat("SGD: momentum = ", options.momentum, "; it must not be negative"));
  if (options.nesterov && options.momentum == 0)
    throw InputError("SGD: nesterov needs a momentum above 0, but momentum = 0");
  refuse_eight_bits(common, "SGD");
  return std::make_unique<Sgd>(std::move(slots), options, common);
}

}  // namespace tessera::optim
