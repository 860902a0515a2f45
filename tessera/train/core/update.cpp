#include <tessera/train/core/update.h>

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/config/rules/validate_mup.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/optim/by_name.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/core/wide_states.h>
#include <tessera/train/saving/stage_parts.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {
namespace {

class OwnUpdate final : public Update {
 public:
  /// `bases`: the rate of each parameter group; `groups`: the group of each slot, if there are several; `scales`: the
  /// rate factor of each slot.
  OwnUpdate(std::unique_ptr<optim::Optimizer> optimizer, std::vector<double> bases, std::vector<std::size_t> groups,
            std::vector<double> scales)
      : optimizer_(std::move(optimizer)),
        bases_(std::move(bases)),
        rates_(bases_),
        groups_(std::move(groups)),
        scales_(std::move(scales)) {}

  void step(double gradient_scale) override { optimizer_->step(unit_rate(), gradient_scale); }
  bool takes_step_scalars() const override { return optimizer_->takes_step_scalars(); }
  void step_by(const at::Tensor& scalars) override { optimizer_->step_by(scalars, unit_rate()); }
  void forget_step() override { optimizer_->set_steps(optimizer_->steps() - 1); }
  void set_learning_rates(const std::function<double(double, std::size_t)>& rate) override {
    // A schedule with `min_lr` is undefined for a peak of 0, so such a group keeps rate 0.
    for (std::size_t i = 0; i < bases_.size(); ++i) rates_[i] = i > 0 && bases_[i] == 0 ? 0 : rate(bases_[i], i);
  }
  bool set_betas(const optim::Betas& betas) override { return optimizer_->set_betas(betas); }
  std::vector<double> learning_rates() const override { return rates_; }
  std::vector<HeldState> states(const Sharded& sharded) const override { return held_states(sharded, *optimizer_); }
  std::int64_t steps() const override { return optimizer_->steps(); }
  void restore(const Sharded& sharded, std::int64_t steps, const std::string& folder,
               const std::shared_ptr<format::ReadSums>& sums, const std::string& stem) override {
    std::size_t all = 0;
    const Counts counts = count_over_stages(sharded, [&] {
      const checkpoint::StoredState stored(folder, sums, stem);
      all = stored.tensors().size();
      return read_own(sharded, stored, folder);
    });
    const auto [restored, own] = counts;
    if (restored != own || static_cast<std::size_t>(restored) != all)
      throw InputError(concat(folder, ": the checkpoint has ", all, " optimizer tensors, of which ", restored,
                              " are among the ", own, " of this run: resume with the same --optim and model"));
    optimizer_->set_steps(steps);
  }

 private:
  /// The learning rate of a step; with several parameter groups the slots get their rates as factors.
  double unit_rate() {
    if (rates_.size() == 1) return rates_.front();
    // One rate may be 0 while another is not, so none of them can serve as the common reference.
    std::vector<double> rates;
    for (std::size_t i = 0; i < groups_.size(); ++i) rates.push_back(rates_.at(groups_[i]) * scales_[i]);
    optimizer_->set_learning_rate_scales(rates);
    return 1;
  }

  /// Returns how many states were read and how many this run has, not counting those shared with an earlier stage.
  Counts read_own(const Sharded& sharded, const checkpoint::StoredState& stored, const std::string& folder) const {
    std::vector<HeldState> state = states(sharded);
    std::sort(state.begin(), state.end(),
              [](const auto& a, const auto& b) { return a.name < b.name; });  // order of the tensors in the files
    Counts counts{};
    for (const auto& [name, held, parameter, encoded] : state) {
      const std::int64_t counted = is_state_of_earlier_stage(sharded, name) ? 0 : 1;
      counts[1] += counted;
      const format::StoredTensor* whole = stored.find(name);
      if (whole == nullptr) continue;
      const at::Tensor own = encoded ? at::empty(held.sizes(), held.options()) : held;
      if (whole->shape != (parameter == nullptr ? own.sizes().vec() : saved_shape(*parameter)))
        throw InputError(concat(folder, ": optimizer state ", name, " has a different shape than this model's"));
      if (parameter == nullptr) {
        if (own.numel() > 0) stored.read(name, 0, own.detach());
      } else {
        read_held(*parameter, stored, name, own.detach());
      }
      if (encoded) encoded->encode(own);
      counts[0] += counted;
    }
    return counts;
  }

  std::unique_ptr<optim::Optimizer> optimizer_;
  std::vector<double> bases_, rates_;
  std::vector<std::size_t> groups_;
  std::vector<double> scales_;
};

/// Parameters whose states stay in 32 bits with an 8-bit optimizer: embedding tables (transformers' Trainer registers
/// each nn.Embedding with bitsandbytes the same way), not the head.
std::function<bool(const std::string&)> tables_of(const torch::nn::Module& module, const ParameterKinds& kinds) {
  std::set<std::string> found;
  for (const auto& item : module.named_modules("", false))
    if (dynamic_cast<const torch::nn::EmbeddingImpl*>(item.value().get()) != nullptr)
      found.insert(item.key() + ".weight");
  return [found = std::move(found), embedding = kinds.embedding](const std::string& name) {
    return found.contains(name) || (embedding && embedding(name) && !is_head(name));
  };
}

/// Sets the rate and epsilon of a slot whose whole parameter has `dimensions` dimensions, in a model `width` times as
/// wide as the one that the rate was tuned for.
void scale_by_width(optim::Slot& slot, OptimizerKind kind, double width, bool embedding, bool decoupled,
                    std::size_t dimensions) {
  const bool matrix = dimensions > 1 && !embedding;
  if (kind == OptimizerKind::sgd) {
    if (!matrix && !decoupled) slot.learning_rate_scale = width;
    return;
  }
  if (!matrix || slot.orthogonal) return;
  slot.learning_rate_scale = 1 / width;
  if (kind == OptimizerKind::adamw || kind == OptimizerKind::adam) slot.epsilon_scale = 1 / width;
}

}  // namespace

void Update::step_by(const at::Tensor&) { throw Error("this update cannot read its scalars from the device"); }

WeightDecay decay_everything(double weight_decay) {
  return [=](const std::string&, const std::vector<std::int64_t>&) { return weight_decay; };
}
WeightDecay decay_matrices(double weight_decay) {
  return
      [=](const std::string&, const std::vector<std::int64_t>& shape) { return shape.size() > 1 ? weight_decay : 0.0; };
}

MakeUpdate configured_update(const OptimizationConfig& config, WeightDecay decay, ParameterKinds kinds) {
  return [config, decay = std::move(decay), kinds = std::move(kinds)](const torch::nn::Module& module,
                                                                      const Sharded& sharded) {
    const bool muon = config.optim == OptimizerKind::muon, decoupled = config.decoupled_lr >= 0;
    if (!kinds.embedding && (muon || decoupled))
      throw InputError(
          concat(muon ? "--optim muon" : "--decoupled_lr",
                 " works only in `tessera train`, whose models know which parameters are embeddings; remove it"));
    const double width = kinds.width;
    // A model's folder may set use_mup without a flag, which the config rules do not see.
    if (const std::string why = config::no_mup_beside(config.optim); width != 1 && !why.empty())
      throw InputError(concat("--optim ", config.optim, " contradicts use_mup: ", why));
    std::vector<optim::Slot> slots = sharded.slots();
    const auto& parameters = sharded.named_parameters();
    TESSERA_CHECK(slots.size() == parameters.size(), slots.size(), " slots of ", parameters.size(), " parameters");
    const auto is_table = tables_of(module, kinds);
    std::vector<std::size_t> groups;
    std::vector<double> scales;
    for (std::size_t i = 0; i < slots.size(); ++i) {
      const auto& [name, shape] = std::tie(parameters[i].name, parameters[i].shape);
      slots[i].weight_decay = decay(name, shape);
      slots[i].orthogonal = muon && shape.size() == 2 && !kinds.embedding(name);
      slots[i].wide_states = is_table(name);
      groups.push_back(decoupled && kinds.embedding_of_words(name) ? 1 : 0);
      if (width != 1)
        scale_by_width(slots[i], config.optim, width, kinds.embedding(name), groups.back() == 1, shape.size());
      // A multiple of the other rate, so that it follows the same schedule: torch's LambdaLR also scales every group.
      if (config.mm_projector_lr >= 0 && kinds.projector && kinds.projector(name))
        slots[i].learning_rate_scale *= config.mm_projector_lr / config.learning_rate;
      scales.push_back(slots[i].learning_rate_scale);
    }
    auto optimizer = optim::make_optimizer(optimizer_choice(config), std::move(slots),
                                           {.bf16_state = config.bf16_optimizer_states,
                                            .stochastic_rounding = config.stochastic_rounding,
                                            .seed = static_cast<std::uint64_t>(config.seed),
                                            .allocate = sharded.state_allocator(),
                                            .sum_over_shards = sharded.sum_over_shards()});
    std::vector<double> bases = {config.learning_rate};
    if (decoupled) bases.push_back(config.decoupled_lr);
    return std::make_unique<OwnUpdate>(std::move(optimizer), std::move(bases), std::move(groups), std::move(scales));
  };
}

}  // namespace tessera::train
