#include <tessera/train/core/update.h>

#include <utility>

#include <tessera/base/error.h>
#include <tessera/optim/by_name.h>
#include <tessera/train/loop/optimization.h>

namespace tessera::train {
namespace {

class OwnUpdate final : public Update {
 public:
  OwnUpdate(std::unique_ptr<optim::Optimizer> optimizer, double learning_rate)
      : optimizer_(std::move(optimizer)), base_(learning_rate), rate_(learning_rate) {}

  void step(double gradient_scale) override { optimizer_->step(rate_, gradient_scale); }
  void set_learning_rates(const std::function<double(double)>& rate) override { rate_ = rate(base_); }
  bool set_betas(const optim::Betas& betas) override { return optimizer_->set_betas(betas); }
  std::vector<double> learning_rates() const override { return {rate_}; }
  std::vector<HeldState> states(const Sharded& sharded) const override { return held_states(sharded, *optimizer_); }
  std::int64_t steps() const override { return optimizer_->steps(); }
  void restore(const Sharded& sharded, std::int64_t steps, const std::string& folder,
               const std::shared_ptr<format::ReadSums>& sums, const std::string& stem) override {
    restore_optimizer(*optimizer_, sharded, steps, folder, sums, stem);
  }

 private:
  std::unique_ptr<optim::Optimizer> optimizer_;
  double base_, rate_;
};

}  // namespace

WeightDecay decay_everything(double weight_decay) {
  return [=](const std::string&, const std::vector<std::int64_t>&) { return weight_decay; };
}
WeightDecay decay_matrices(double weight_decay) {
  return
      [=](const std::string&, const std::vector<std::int64_t>& shape) { return shape.size() > 1 ? weight_decay : 0.0; };
}

std::unique_ptr<Update> own_update(std::unique_ptr<optim::Optimizer> optimizer, double learning_rate) {
  return std::make_unique<OwnUpdate>(std::move(optimizer), learning_rate);
}

std::unique_ptr<optim::Optimizer> configured_optimizer(const OptimizationConfig& config, const Sharded& sharded,
                                                       const WeightDecay& decay) {
  std::vector<optim::Slot> slots = sharded.slots();
  const auto& parameters = sharded.named_parameters();
  TESSERA_CHECK(slots.size() == parameters.size(), slots.size(), " slots of ", parameters.size(), " parameters");
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i].weight_decay = decay(parameters[i].name, parameters[i].shape);
  return optim::make_optimizer(optimizer_choice(config), std::move(slots),
                               {.bf16_state = config.bf16_optimizer_states,
                                .stochastic_rounding = config.stochastic_rounding,
                                .seed = static_cast<std::uint64_t>(config.seed),
                                .allocate = sharded.state_allocator(),
                                .sum_over_shards = sharded.sum_over_shards()});
}

MakeUpdate configured_update(const OptimizationConfig& config, WeightDecay decay) {
  return [config, decay = std::move(decay)](const torch::nn::Module&, const Sharded& sharded) {
    return own_update(configured_optimizer(config, sharded, decay), config.learning_rate);
  };
}

}  // namespace tessera::train
