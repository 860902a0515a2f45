// AdamW and Adam over all parameters in one pass: float32 parameters use the kernels of the CPU or of the CUDA plug-in;
// everything else uses ATen's operators.

#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/adamw.h>
#include <tessera/optim/device_kernels.h>
#include <tessera/optim/elementwise.h>

#include <cmath>

namespace tessera::optim {
namespace {

class AdamW final : public ElementwiseOptimizer {
 public:
  AdamW(std::vector<Slot> slots, const AdamWOptions& options, const CommonOptions& common, bool decay_in_gradient)
      : ElementwiseOptimizer(std::move(slots), {{"exp_avg"}, {"exp_avg_sq", {}, false, false}}, common),
        options_(options),
        decay_in_gradient_(decay_in_gradient) {}

  bool set_betas(const Betas& betas) override {
    check_betas("AdamW", betas.beta1, betas.beta2);
    options_.beta1 = betas.beta1;
    options_.beta2 = betas.beta2;
    return true;
  }

  bool takes_step_scalars() const override {
    for (std::size_t i = 0; i < slot_count(); ++i)
      if (!has_kernel(i)) return false;
    return true;
  }

 private:
  void update_block(const Block& b, const float* gradient, const StepFactors& factors) override {
    const kernels::AdamwArgs a = arguments(b.slot, factors);
    if (flat().is_eight_bit(b.slot))
      kernels::adamw_eight_bits(parameter_data(b), gradient, flat().eight_bits(0, b.slot, b.offset),
                                flat().eight_bits(1, b.slot, b.offset), b.numel, a);
    else if (common().bf16_state)
      kernels::adamw_bf16(parameter_data(b), gradient, state_data<std::uint16_t>(0, b), state_data<std::uint16_t>(1, b),
                          b.numel, a, rounding(b));
    else
      kernels::adamw(parameter_data(b), gradient, state_data(0, b), state_data(1, b), b.numel, a);
  }

  void update_slot(std::size_t i, const at::Tensor& gradient, const std::vector<at::Tensor>& states,
                   const StepFactors& factors) override {
    generic_update(slot(i).parameter, gradient, states[0], states[1], arguments(i, factors));
  }

  bool update_together(const std::vector<at::Tensor>& gradients, const StepFactors& factors) override {
    if (!takes_step_scalars()) return false;
    std::vector<kernels::cuda::AdamwRange> ranges;
    std::vector<kernels::cuda::AdamwBf16Range> bf16_ranges;
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined() || gradients[i].numel() == 0) continue;
      const Block all{i, 0, gradients[i].numel()};
      const float* const g = gradients[i].const_data_ptr<float>();
      if (common().bf16_state)
        bf16_ranges.push_back({.p = parameter_data(all),
                               .g = g,
                               .m = state_data<std::uint16_t>(0, all),
                               .v = state_data<std::uint16_t>(1, all),
                               .n = all.numel,
                               .args = arguments(i, factors),
                               .rounding = rounding(all)});
      else
        ranges.push_back({.p = parameter_data(all),
                          .g = g,
                          .m = state_data(0, all),
                          .v = state_data(1, all),
                          .n = all.numel,
                          .args = arguments(i, factors)});
    }
    if (ranges.empty() && bf16_ranges.empty()) return true;
    const c10::DeviceGuard guard(slot(0).parameter.device());  // the kernel runs on the current device's stream
    if (common().bf16_state)
      device_kernels().adamw_bf16(bf16_ranges, factors.scalars);
    else
      device_kernels().adamw(ranges, factors.scalars);
    return true;
  }

  /// Whether the plug-in's kernel updates the slot.
  bool has_kernel(std::size_t i) const {
    return slot(i).parameter.is_cuda() && slot(i).parameter.scalar_type() == at::kFloat;
  }

  kernels::AdamwArgs arguments(std::size_t i, const StepFactors& factors) const {
    return {.learning_rate = factors.learning_rate * slot(i).learning_rate_scale,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .epsilon = options_.epsilon * slot(i).epsilon_scale,
            .weight_decay = slot(i).weight_decay,
            .gradient_scale = factors.gradient_scale,
            .step = options_.bias_correction ? steps() : kNoCorrection,
            .decay_in_gradient = decay_in_gradient_};
  }

  /// Like torch/optim/adam.py, _single_tensor_adam, on any device.
  static void generic_update(const at::Tensor& p, const at::Tensor& gradient, const at::Tensor& m, const at::Tensor& v,
                             const kernels::AdamwArgs& a) {
    at::Tensor g = a.gradient_scale == 1 ? gradient : gradient * a.gradient_scale;
    const double correction1 = 1 - std::pow(a.beta1, static_cast<double>(a.step));
    const double correction2 = 1 - std::pow(a.beta2, static_cast<double>(a.step));
    if (a.decay_in_gradient)
      g = g.add(p, a.weight_decay);
    else
      p.mul_(1 - a.learning_rate * a.weight_decay);
    m.lerp_(g, 1 - a.beta1);
    v.mul_(a.beta2).addcmul_(g, g, 1 - a.beta2);
    p.addcdiv_(m, (v.sqrt() / std::sqrt(correction2)).add_(a.epsilon), -a.learning_rate / correction1);
  }

  /// A step number so large that 1 - beta^step is 1.
  static constexpr std::int64_t kNoCorrection = std::int64_t{1} << 50;

  AdamWOptions options_;
  bool decay_in_gradient_;
};

std::unique_ptr<Optimizer> make(const char* name, std::vector<Slot> slots, const AdamWOptions& options,
                                const CommonOptions& common, bool decay_in_gradient) {
  if (!(options.beta1 >= 0 && options.beta1 < 1) || !(options.beta2 >= 0 && options.beta2 < 1) ||
      !(options.epsilon >= 0))
    throw InputError(concat(name, ": beta1 = ", options.beta1, ", beta2 = ", options.beta2, ", epsilon = ",
                            options.epsilon, "; each beta must be in [0, 1) and epsilon must not be negative"));
  return std::make_unique<AdamW>(std::move(slots), options, common, decay_in_gradient);
}

}  // namespace

std::unique_ptr<Optimizer> make_adamw(std::vector<Slot> slots, const AdamWOptions& options,
                                      const CommonOptions& common) {
  return make("AdamW", std::move(slots), options, common, false);
}

std::unique_ptr<Optimizer> make_adam(std::vector<Slot> slots, const AdamWOptions& options,
                                     const CommonOptions& common) {
  return make("Adam", std::move(slots), options, common, true);
}

}  // namespace tessera::optim
