// Adagrad over all parameters in one pass. CPU float32 uses the kernel; everything else uses ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/adagrad.h>
#include <tessera/optim/elementwise.h>

namespace tessera::optim {
namespace {

class Adagrad final : public ElementwiseOptimizer {
 public:
  Adagrad(std::vector<Slot> slots, const AdagradOptions& options, const CommonOptions& common)
      : ElementwiseOptimizer(std::move(slots), {{"sum"}}, common), options_(options) {
    if (options.initial_accumulator_value == 0) return;
    for (std::size_t i = 0; i < slot_count(); ++i) state_of(0, i).fill_(options.initial_accumulator_value);
  }

 private:
  void update_block(const Block& b, const float* gradient, const StepFactors& factors) override {
    kernels::adagrad(parameter_data(b), gradient, state_data(0, b), b.numel, arguments(b.slot, factors));
  }

  /// Like torch/optim/adagrad.py, _single_tensor_adagrad, on any device.
  void update_slot(std::size_t i, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                   const StepFactors& factors) override {
    const kernels::AdagradArgs a = arguments(i, factors);
    const at::Tensor p = slot(i).parameter;
    const at::Tensor g = (gradient * a.gradient_scale).add_(p, a.weight_decay);
    states[0].addcmul_(g, g);
    p.addcdiv_(g, states[0].sqrt().add_(a.epsilon), -a.learning_rate);
  }

  kernels::AdagradArgs arguments(std::size_t i, const StepFactors& factors) const {
    const double decayed =
        factors.learning_rate / (1 + static_cast<double>(steps() - 1) * options_.learning_rate_decay);
    return {.learning_rate = decayed * slot(i).learning_rate_scale,
            .epsilon = options_.epsilon,
            .weight_decay = slot(i).weight_decay,
            .gradient_scale = factors.gradient_scale};
  }

  AdagradOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adagrad(std::vector<Slot> slots, const AdagradOptions& options,
                                        const CommonOptions& common) {
  if (!(options.epsilon >= 0) || !(options.learning_rate_decay >= 0) || !(options.initial_accumulator_value >= 0))
    throw InputError(
        concat("Adagrad: epsilon = ", options.epsilon, ", learning_rate_decay = ", options.learning_rate_decay,
               ", initial_accumulator_value = ", options.initial_accumulator_value, "; none may be negative"));
  refuse_bf16(common, "Adagrad");
  return std::make_unique<Adagrad>(std::move(slots), options, common);
}

}  // namespace tessera::optim
