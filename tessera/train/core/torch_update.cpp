// The user's torch::optim optimizer, applied to this rank's parts of the parameters.

#include <tessera/train/core/update.h>

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/optimizer.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include <map>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/checkpoint/checkpoint.h>
#include <tessera/checkpoint/stored_state.h>
#include <tessera/train/saving/stage_parts.h>
#include <tessera/train/saving/tensor_parts.h>

namespace tessera::train {
namespace {

using torch::optim::OptimizerParamState;
using Fields = std::vector<std::pair<const char*, at::Tensor*>>;

/// The relevant properties of an optimizer class whose states all have the layout of the parameter.
struct Kind {
  bool (*is)(const torch::optim::Optimizer&);
  std::unique_ptr<OptimizerParamState> (*make)();
  Fields (*fields)(OptimizerParamState&);
  std::int64_t* (*step)(OptimizerParamState&);  ///< nullptr: the class does not count steps
};

template <class Optimizer, class State>
Kind adam_like() {
  return {[](const torch::optim::Optimizer& o) { return dynamic_cast<const Optimizer*>(&o) != nullptr; },
          []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<State>(); },
          [](OptimizerParamState& state) -> Fields {
            auto& s = static_cast<State&>(state);
            return {
                {"exp_avg", &s.exp_avg()}, {"exp_avg_sq", &s.exp_avg_sq()}, {"max_exp_avg_sq", &s.max_exp_avg_sq()}};
          },
          [](OptimizerParamState& state) -> std::int64_t* { return &static_cast<State&>(state).step(); }};
}

const std::vector<Kind>& kinds() {
  using namespace torch::optim;
  static const std::vector<Kind> all = {
      adam_like<AdamW, AdamWParamState>(),
      adam_like<Adam, AdamParamState>(),
      {[](const Optimizer& o) { return dynamic_cast<const SGD*>(&o) != nullptr; },
       []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<SGDParamState>(); },
       [](OptimizerParamState& s) -> Fields {
         return {{"momentum_buffer", &static_cast<SGDParamState&>(s).momentum_buffer()}};
       },
       [](OptimizerParamState&) -> std::int64_t* { return nullptr; }},
      {[](const Optimizer& o) { return dynamic_cast<const Adagrad*>(&o) != nullptr; },
       []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<AdagradParamState>(); },
       [](OptimizerParamState& s) -> Fields { return {{"sum", &static_cast<AdagradParamState&>(s).sum()}}; },
       [](OptimizerParamState& s) -> std::int64_t* { return &static_cast<AdagradParamState&>(s).step(); }},
      {[](const Optimizer& o) { return dynamic_cast<const RMSprop*>(&o) != nullptr; },
       []() -> std::unique_ptr<OptimizerParamState> { return std::make_unique<RMSpropParamState>(); },
       [](OptimizerParamState& state) -> Fields {
         auto& s = static_cast<RMSpropParamState&>(state);
         return {
             {"square_avg", &s.square_avg()}, {"momentum_buffer", &s.momentum_buffer()}, {"grad_avg", &s.grad_avg()}};
       },
       [](OptimizerParamState& s) -> std::int64_t* { return &static_cast<RMSpropParamState&>(s).step(); }},
  };
  return all;
}

const Kind& kind_of(const torch::optim::Optimizer& optimizer) {
  for (const Kind& kind : kinds())
    if (kind.is(optimizer)) return kind;
  throw InputError(
      "the optimizer is not one of torch::optim's Adam, AdamW, SGD, Adagrad, RMSprop: others need whole parameters, "
      "which ranks may not have. Use one of them, or choose one of this library's (LAMB, Adafactor, ...) in the "
      "configuration");
}

class TorchUpdate final : public Update {
 public:
  TorchUpdate(torch::optim::Optimizer& optimizer, const torch::nn::Module& module, const Sharded& sharded)
      : optimizer_(optimizer), kind_(kind_of(optimizer)) {
    take_parts(module, sharded);
    base_ = learning_rates();
  }

  void step(double gradient_scale) override {
    if (gradient_scale != 1)
      for (auto& group : optimizer_.param_groups())
        for (at::Tensor& part : group.params())
          if (part.grad().defined()) part.mutable_grad().mul_(gradient_scale);
    optimizer_.step();
    ++steps_;
  }
  void set_learning_rates(const std::function<double(double, std::size_t)>& rate) override {
    auto& groups = optimizer_.param_groups();
    for (std::size_t i = 0; i < groups.size(); ++i) groups[i].options().set_lr(rate(base_.at(i), i));
  }
  std::vector<double> learning_rates() const override {
    std::vector<double> rates;
    for (const auto& group : optimizer_.param_groups()) rates.push_back(group.options().get_lr());
    return rates;
  }

  std::vector<HeldState> states(const Sharded& sharded) const override {
    std::vector<HeldState> states;
    for (const ShardedParameter& parameter : sharded.named_parameters()) {
      const auto found = optimizer_.state().find(key(parameter.local));
      if (found == optimizer_.state().end()) continue;
      for (const auto& [field, tensor] : kind_.fields(*found->second))
        if (tensor->defined())
          states.push_back({concat(field, ".", parameter.name), tensor->detach().flatten(), &parameter});
    }
    return states;
  }
  std::int64_t steps() const override { return steps_; }

  void restore(const Sharded& sharded, std::int64_t steps, const std::string& folder,
               const std::shared_ptr<format::ReadSums>& sums, const std::string& stem) override {
    std::size_t all = 0;
    const auto [restored, none] = count_over_stages(sharded, [&] {
      const checkpoint::StoredState file(folder, sums, stem);
      all = file.tensors().size();
      return Counts{read_own(sharded, steps, file, folder), 0};
    });
    if (static_cast<std::size_t>(restored) != all)
      throw InputError(concat(folder, ": the checkpoint has ", all, " optimizer tensors, of which ", restored,
                              " fit this optimizer: resume with the same optimizer and model"));
    steps_ = steps;
  }

 private:
  /// Returns the number of states read, not counting those shared with an earlier stage.
  std::int64_t read_own(const Sharded& sharded, std::int64_t steps, const checkpoint::StoredState& file,
                        const std::string& folder) {
    std::int64_t restored = 0;
    for (const ShardedParameter& parameter : sharded.named_parameters()) {
      if (!held(parameter.local)) continue;
      std::unique_ptr<OptimizerParamState> state = kind_.make();
      bool any = false;
      for (const auto& [field, tensor] : kind_.fields(*state)) {
        const format::StoredTensor* stored = file.find(concat(field, ".", parameter.name));
        if (stored == nullptr) continue;
        if (stored->shape != saved_shape(parameter))
          throw InputError(
              concat(folder, ": optimizer state ", stored->name, " has a different shape than this model's"));
        *tensor = at::zeros_like(parameter.local.detach());
        if (tensor->numel() > 0) read_held(parameter, file, stored->name, *tensor);
        any = true;
        if (!is_of_earlier_stage(sharded, parameter.name)) ++restored;
      }
      if (std::int64_t* count = kind_.step(*state)) *count = steps;
      if (any) optimizer_.state()[key(parameter.local)] = std::move(state);
    }
    return restored;
  }

  static void* key(const at::Tensor& tensor) { return tensor.unsafeGetTensorImpl(); }

  bool held(const at::Tensor& part) const {
    for (const auto& group : optimizer_.param_groups())
      for (const at::Tensor& tensor : group.params())
        if (key(tensor) == key(part)) return true;
    return false;
  }

  /// Replaces the module's parameters in the optimizer's groups, and states that its constructor created, with this
  /// rank's parts.
  void take_parts(const torch::nn::Module& module, const Sharded& sharded) {
    std::map<std::string, const ShardedParameter*> by_name;
    for (const ShardedParameter& parameter : sharded.named_parameters()) by_name[parameter.name] = &parameter;
    std::map<void*, const ShardedParameter*> part_of;  // nullptr: not trained
    for (const auto& item : module.named_parameters()) {
      const auto found = by_name.find(item.key());
      part_of.emplace(key(item.value()),
                      found == by_name.end() ? nullptr : found->second);  // a tied parameter keeps its first name
    }
    for (auto& group : optimizer_.param_groups()) {
      std::vector<at::Tensor> parts;
      for (const at::Tensor& tensor : group.params()) {
        const auto found = part_of.find(key(tensor));
        if (found == part_of.end())
          throw InputError(concat("the optimizer has a parameter of shape ", tensor.sizes(),
                                  " that does not belong to the module: construct it "
                                  "from module->parameters(), and pass both together"));
        if (found->second == nullptr) continue;
        parts.push_back(found->second->local);
        move_state(tensor, *found->second);
      }
      group.params() = std::move(parts);
    }
  }

  void move_state(const at::Tensor& whole, const ShardedParameter& part) {
    const auto found = optimizer_.state().find(key(whole));
    if (found == optimizer_.state().end() || key(whole) == key(part.local)) return;
    std::unique_ptr<OptimizerParamState> state = std::move(found->second);
    optimizer_.state().erase(found);
    for (const auto& [field, tensor] : kind_.fields(*state))
      if (tensor->defined()) *tensor = tensor->flatten().narrow(0, part.begin, part.local.numel()).clone();
    if (const std::int64_t* count = kind_.step(*state)) steps_ = *count;
    optimizer_.state()[key(part.local)] = std::move(state);
  }

  torch::optim::Optimizer& optimizer_;
  const Kind& kind_;
  std::vector<double> base_;
  std::int64_t steps_ = 0;
};

}  // namespace

MakeUpdate torch_update(torch::optim::Optimizer& optimizer) {
  return [&optimizer](const torch::nn::Module& module, const Sharded& sharded) -> std::unique_ptr<Update> {
    return std::make_unique<TorchUpdate>(optimizer, module, sharded);
  };
}

}  // namespace tessera::train
