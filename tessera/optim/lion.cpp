// Lion over all parameters in one pass. CPU float32 uses the kernel; everything else uses ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/lion.h>
#include <tessera/optim/elementwise.h>

namespace tessera::optim {
namespace {

class Lion final : public ElementwiseOptimizer {
 public:
  Lion(std::vector<Slot> slots, const LionOptions& options, const CommonOptions& common)
      : ElementwiseOptimizer(std::move(slots), {{"exp_avg"}}, common), options_(options) {}

  bool set_betas(const Betas& betas) override {
    check_betas("Lion", betas.beta1, betas.beta2);
    options_.beta1 = betas.beta1;
    options_.beta2 = betas.beta2;
    return true;
  }

 private:
  void update_block(const Block& b, const float* gradient, const StepFactors& factors) override {
    const kernels::LionArgs a = arguments(b.slot, factors);
    if (flat().is_eight_bit(b.slot))
      kernels::lion_eight_bits(parameter_data(b), gradient, flat().eight_bits(0, b.slot, b.offset), b.numel, a);
    else if (common().bf16_state)
      kernels::lion_bf16(parameter_data(b), gradient, state_data<std::uint16_t>(0, b), b.numel, a, rounding(b));
    else
      kernels::lion(parameter_data(b), gradient, state_data(0, b), b.numel, a);
  }

  void update_slot(std::size_t i, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                   const StepFactors& factors) override {
    const kernels::LionArgs a = arguments(i, factors);
    const at::Tensor p = slot(i).parameter;
    const at::Tensor g = gradient * a.gradient_scale;
    const at::Tensor average = states[0].lerp(g, 1 - a.beta1);
    const at::Tensor direction = at::where(average.isnan(), average, average.sign());  // ATen's sign hides a NaN
    p.mul_(1 - a.learning_rate * a.weight_decay).add_(direction, -a.learning_rate);
    states[0].lerp_(g, 1 - a.beta2);
  }

  kernels::LionArgs arguments(std::size_t i, const StepFactors& factors) const {
    return {.learning_rate = factors.learning_rate * slot(i).learning_rate_scale,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .weight_decay = slot(i).weight_decay,
            .gradient_scale = factors.gradient_scale};
  }

  LionOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lion(std::vector<Slot> slots, const LionOptions& options, const CommonOptions& common) {
  check_betas("Lion", options.beta1, options.beta2);
  return std::make_unique<Lion>(std::move(slots), options, common);
}

}  // namespace tessera::optim
