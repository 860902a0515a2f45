// LAMB: first the moments and directions of all parameters, then their norms over all shards, then the updates. CPU
// float32 uses the kernels; everything else uses ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/block_squares.h>
#include <tessera/kernels/cpu/lamb.h>
#include <tessera/optim/fused.h>
#include <tessera/optim/shard_sums.h>

#include <algorithm>
#include <cmath>
#include <mutex>

namespace tessera::optim {
namespace {

/// The squared norms of one slot.
struct Norms {
  ExactSum parameter, update;
};

class Lamb final : public FusedOptimizer {
 public:
  Lamb(std::vector<Slot> slots, const LambOptions& options, const CommonOptions& common)
      : FusedOptimizer(std::move(slots), {{"exp_avg"}, {"exp_avg_sq"}}, common), options_(options) {}

  bool set_betas(const Betas& betas) override {
    check_betas("LAMB", betas.beta1, betas.beta2);
    options_.beta1 = betas.beta1;
    options_.beta2 = betas.beta2;
    return true;
  }

 private:
  void update(const std::vector<at::Tensor>& gradients, const StepFactors& factors) override {
    const bool kernel = flat().has_kernels();
    std::vector<at::Tensor> directions(slot_count());
    std::vector<Norms> norms(slot_count());
    if (kernel)
      moments(gradients, factors, norms);
    else
      for (std::size_t i = 0; i < slot_count(); ++i)
        if (gradients[i].defined()) directions[i] = generic_moments(i, gradients[i], factors, norms[i]);
    const std::vector<double> ratios = trust_ratios(norms);
    if (kernel) {
      flat().for_each_block(gradients, [&](const Block& b) {
        kernels::lamb_apply(parameter_data(b), state_data(0, b), state_data(1, b), b.numel, arguments(b.slot, factors),
                            ratios[b.slot]);
      });
      return;
    }
    for (std::size_t i = 0; i < slot_count(); ++i)
      if (directions[i].defined())
        slot(i).parameter.add_(directions[i], -arguments(i, factors).learning_rate * ratios[i]);
  }

  void moments(const std::vector<at::Tensor>& gradients, const StepFactors& factors, std::vector<Norms>& norms) {
    std::mutex mutex;
    flat().for_each_block(gradients, [&](const Block& b) {
      const auto blocks = static_cast<std::size_t>((b.numel + kernels::square_block - 1) / kernels::square_block);
      std::vector<double> p(blocks), u(blocks);
      kernels::lamb_moments(parameter_data(b), gradients[b.slot].const_data_ptr<float>() + b.offset, state_data(0, b),
                            state_data(1, b), b.numel, arguments(b.slot, factors), p.data(), u.data());
      Norms part;
      part.parameter.add(p);
      part.update.add(u);
      const std::lock_guard lock(mutex);
      norms[b.slot].parameter.merge(part.parameter);
      norms[b.slot].update.merge(part.update);
    });
  }

  at::Tensor generic_moments(std::size_t i, const at::Tensor& gradient, const StepFactors& factors, Norms& norms) {
    const kernels::AdamwArgs a = arguments(i, factors);
    const at::Tensor &p = slot(i).parameter, &m = state_of(0, i), &v = state_of(1, i);
    const at::Tensor g = gradient * a.gradient_scale;
    m.lerp_(g, 1 - a.beta1);
    v.mul_(a.beta2).addcmul_(g, g, 1 - a.beta2);
    const double correction1 = a.step == 0 ? 1 : 1 - std::pow(a.beta1, static_cast<double>(a.step));
    const double correction2 = a.step == 0 ? 1 : 1 - std::pow(a.beta2, static_cast<double>(a.step));
    const at::Tensor u =
        (m / correction1).div_((v.sqrt() / std::sqrt(correction2)).add_(a.epsilon)).add_(p, a.weight_decay);
    norms.parameter = squares_of_tensor(p.detach());
    norms.update = squares_of_tensor(u);
    return u;
  }

  std::vector<double> trust_ratios(const std::vector<Norms>& norms) {
    ShardSums sums(common().sum_over_shards);
    std::vector<std::size_t> places;
    for (const Norms& n : norms) {
      places.push_back(sums.put(n.parameter));
      sums.put(n.update);
    }
    sums.exchange();
    std::vector<double> ratios;
    for (std::size_t i = 0; i < norms.size(); ++i) {
      const double p = std::sqrt(sums.exact(places[i])), u = std::sqrt(sums.exact(places[i] + ExactSum::word_count));
      const bool adapted = options_.adapt_undecayed || slot(i).weight_decay != 0;
      ratios.push_back(!adapted || p == 0 || u == 0 ? 1 : bounded(p / u));
    }
    return ratios;
  }

  double bounded(double ratio) const {
    if (options_.max_trust_ratio > 0) ratio = std::min(ratio, options_.max_trust_ratio);
    return std::max(ratio, options_.min_trust_ratio);
  }

  kernels::AdamwArgs arguments(std::size_t i, const StepFactors& factors) const {
    return {.learning_rate = factors.learning_rate * slot(i).learning_rate_scale,
            .beta1 = options_.beta1,
            .beta2 = options_.beta2,
            .epsilon = options_.epsilon,
            .weight_decay = slot(i).weight_decay,
            .gradient_scale = factors.gradient_scale,
            .step = options_.bias_correction ? steps() : 0};
  }

  LambOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lamb(std::vector<Slot> slots, const LambOptions& options, const CommonOptions& common) {
  if (!(options.beta1 >= 0 && options.beta1 < 1) || !(options.beta2 >= 0 && options.beta2 < 1) ||
      !(options.epsilon >= 0) || !(options.min_trust_ratio >= 0) || !(options.max_trust_ratio >= 0) ||
      (options.max_trust_ratio > 0 && options.min_trust_ratio > options.max_trust_ratio))
    throw InputError(concat("LAMB: beta1 = ", options.beta1, ", beta2 = ", options.beta2,
                            ", epsilon = ", options.epsilon, ", min_trust_ratio = ", options.min_trust_ratio,
                            ", max_trust_ratio = ", options.max_trust_ratio,
                            "; each beta must be in [0, 1), the others must not be negative, and the minimum ratio not "
                            "above the maximum"));
  refuse_bf16(common, "LAMB");
  return std::make_unique<Lamb>(std::move(slots), options, common);
}

}  // namespace tessera::optim
