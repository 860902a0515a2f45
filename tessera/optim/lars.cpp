// LARS: SGD with a learning rate per parameter, from norms over all shards. CPU float32 uses SGD's kernel; everything
// else uses ATen's operators.

#include <ATen/ATen.h>
#include <tessera/base/error.h>
#include <tessera/kernels/cpu/sgd.h>
#include <tessera/optim/fused.h>
#include <tessera/optim/shard_sums.h>

#include <cmath>

namespace tessera::optim {
namespace {

class Lars final : public FusedOptimizer {
 public:
  Lars(std::vector<Slot> slots, const LarsOptions& options, const CommonOptions& common)
      : FusedOptimizer(std::move(slots),
                       options.momentum == 0 ? std::vector<StateKind>{} : std::vector<StateKind>{{"momentum_buffer"}},
                       common),
        options_(options) {}

 private:
  void update(const std::vector<at::Tensor>& gradients, const StepFactors& factors) override {
    const std::vector<double> scales = trust_factors(gradients, factors.gradient_scale);
    if (flat().has_kernels()) {
      flat().for_each_block(gradients, [&](const Block& b) {
        kernels::sgd(parameter_data(b), gradients[b.slot].const_data_ptr<float>() + b.offset,
                     options_.momentum == 0 ? nullptr : state_data(0, b), b.numel,
                     arguments(b.slot, factors, scales[b.slot]));
      });
      return;
    }
    for (std::size_t i = 0; i < slot_count(); ++i) {
      if (!gradients[i].defined()) continue;
      const kernels::SgdArgs a = arguments(i, factors, scales[i]);
      const at::Tensor p = slot(i).parameter;
      at::Tensor g = (gradients[i] * a.gradient_scale).add_(p, a.weight_decay);
      if (a.momentum != 0) {
        const at::Tensor& b = state_of(0, i);
        b.mul_(a.momentum).add_(g);
        g = a.nesterov ? g.add_(b, a.momentum) : b;
      }
      p.add_(g, -a.learning_rate);
    }
  }

  /// Factors for gradient and decay of each slot.
  std::vector<double> trust_factors(const std::vector<at::Tensor>& gradients, double gradient_scale) {
    ShardSums sums(common().sum_over_shards);
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < slot_count(); ++i) {
      const bool counts = gradients[i].defined();
      places.push_back(sums.put(counts ? squares_of_tensor(slot(i).parameter.detach()) : ExactSum()));
      sums.put(counts ? squares_of_tensor(gradients[i]) : ExactSum());
    }
    sums.exchange();
    std::vector<double> factors;
    for (std::size_t i = 0; i < slot_count(); ++i) {
      const double p = std::sqrt(sums.exact(places[i]));
      const double g = std::sqrt(sums.exact(places[i] + ExactSum::word_count)) * std::abs(gradient_scale);
      const double decay = slot(i).weight_decay;
      const bool adapted = (options_.adapt_undecayed || decay != 0) && p != 0 && g != 0;
      factors.push_back(adapted ? options_.trust_coefficient * p / (g + decay * p + options_.epsilon) : 1);
    }
    return factors;
  }

  kernels::SgdArgs arguments(std::size_t i, const StepFactors& factors, double scale) const {
    return {.learning_rate = factors.learning_rate * slot(i).learning_rate_scale,
            .momentum = options_.momentum,
            .nesterov = options_.nesterov,
            .weight_decay = slot(i).weight_decay * scale,
            .gradient_scale = factors.gradient_scale * scale};
  }

  LarsOptions options_;
};

}  // namespace

std::unique_ptr<Optimizer> make_lars(std::vector<Slot> slots, const LarsOptions& options, const CommonOptions& common) {
  if (!(options.momentum >= 0) || !(options.trust_coefficient > 0) || !(options.epsilon >= 0))
    throw InputError(concat("LARS: momentum = ", options.momentum, ", trust_coefficient = ", options.trust_coefficient,
                            ", epsilon = ", options.epsilon,
                            "; the trust coefficient must be above 0, the others must not be negative"));
  if (options.nesterov && options.momentum == 0)
    throw InputError("LARS: nesterov needs a momentum above 0, but momentum = 0");
  refuse_bf16(common, "LARS");
  return std::make_unique<Lars>(std::move(slots), options, common);
}

}  // namespace tessera::optim
