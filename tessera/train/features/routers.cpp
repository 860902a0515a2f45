#include <tessera/train/features/routers.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/sections/optimization_config.h>
#include <tessera/models/moe_mlp.h>
#include <tessera/nn/moe/balance.h>
#include <tessera/train/features/run_feature.h>

#include <algorithm>
#include <utility>

namespace tessera::train {
namespace {

at::Tensor summed(const at::Tensor& numbers, const comm::Group& group) {
  if (group.size() == 1) return numbers.contiguous().clone();
  const comm::Tag tag("routers");
  const comm::Group there = numbers.is_cpu() ? group.host() : group;
  at::Tensor all = numbers.contiguous().clone().to(there.device());
  there.all_reduce(all).wait();
  return all.to(numbers.device());
}

/// Concatenates the ranks' numbers [N, ...] in rank order.
at::Tensor gathered(const at::Tensor& numbers, const comm::Group& group) {
  const comm::Tag tag("routers");
  auto sizes = numbers.sizes().vec();
  sizes.at(0) *= group.size();
  const at::Tensor own = numbers.contiguous().to(group.device()), all = at::empty(sizes, own.options());
  group.all_gather(all, own).wait();
  return all.to(numbers.device());
}

bool has_biases(const models::LanguageModel& model) {
  const auto names = model.named_parameters();
  return std::any_of(names.begin(), names.end(),
                     [](const auto& item) { return item.key().ends_with(".e_score_correction_bias"); }) ||
         std::any_of(model.elsewhere().begin(), model.elsewhere().end(),
                     [](const std::string& name) { return name.ends_with(".e_score_correction_bias"); });
}

models::BalanceOptions::Form form_of(RouterLossForm form) {
  using Form = models::BalanceOptions::Form;
  switch (form) {
    case RouterLossForm::layers_together:
      return Form::layers_together;
    case RouterLossForm::micro_batch:
      return Form::micro_batch;
    case RouterLossForm::sequence:
      return Form::sequence;
    case RouterLossForm::global_batch:
      break;
  }
  return Form::global_batch;
}

/// Throws InputError if settings of experts are given for a model that has none.
void refuse_settings(const models::LanguageModel& model, const OptimizationConfig& config) {
  if (config.router_aux_loss_coef > 0 || config.router_z_loss_coef > 0 || config.moe_capacity_factor > 0)
    throw InputError(concat(config.router_aux_loss_coef > 0 ? "--router_aux_loss_coef"
                            : config.router_z_loss_coef > 0 ? "--router_z_loss_coef"
                                                            : "--moe_capacity_factor",
                            " is for mixtures of experts, but a model of type \"",
                            model.hf_config().at("model_type").as_string(), "\" has no routers: remove it"));
}

/// Tokens of the same rows are on several ranks, which sum their routers' statistics.
void share_tokens(models::BalanceOptions& balance, const RunGroups& groups) {
  const bool tokens_over_tp = groups.sequence_parallel && groups.tensor_ranks() > 1;
  const bool tokens_over_cp = groups.context_ranks() > 1;
  if (!tokens_over_tp && !tokens_over_cp) return;
  balance.sum_tokens = [tensor = groups.tensor, context = groups.context, tokens_over_tp,
                        tokens_over_cp](const at::Tensor& numbers) {
    at::Tensor all = numbers;
    if (tokens_over_tp) all = summed(all, tensor);
    if (tokens_over_cp) all = summed(all, context.all);
    return all;
  };
  balance.tokens_of_rows = {
      .gather =
          [tensor = groups.tensor, context = groups.context, tokens_over_tp,
           tokens_over_cp](const at::Tensor& numbers) {
            at::Tensor all = numbers;
            if (tokens_over_tp) all = gathered(all, tensor);
            if (tokens_over_cp) all = gathered(all, context.all);
            return all;
          },
      .place = (tokens_over_cp ? groups.context.all.rank() : 0) * (tokens_over_tp ? groups.tensor_ranks() : 1) +
               (tokens_over_tp ? groups.tensor.rank() : 0)};
}

}  // namespace

void set_up_routers(models::LanguageModel& model, const OptimizationConfig& config, const RunGroups& groups) {
  using Form = models::BalanceOptions::Form;
  models::BalanceOptions balance = model.balance();
  if (balance.experts == 0) return refuse_settings(model, config);
  if (config.router_aux_loss_coef >= 0) balance.auxiliary = config.router_aux_loss_coef;
  balance.z = config.router_z_loss_coef;
  if (config.router_bias_update_rate > 0 && !has_biases(model))
    throw InputError(
        concat("--router_bias_update_rate is for routers with an e_score_correction_bias (DeepSeek-V3), but "
               "those of type \"",
               model.hf_config().at("model_type").as_string(), "\" have none: use --router_aux_loss_coef"));
  balance.form = form_of(config.router_aux_loss_form);
  if (balance.auxiliary > 0 && balance.form == Form::layers_together && groups.pipeline_ranks() > 1)
    throw InputError(
        "the routers' balancing loss over all layers together, as in transformers (config.json: "
        "output_router_logits), cannot be computed by pipeline stages, which see only their own layers: use "
        "--router_aux_loss_form micro_batch (or sequence, or global_batch), --router_aux_loss_coef 0, or --pp_size 1");
  balance.capacity = {
      .factor = config.moe_capacity_factor,
      .drop = config.moe_token_drop_policy == TokenDrop::probs ? nn::DropBy::probability : nn::DropBy::position,
      .pad = config.moe_pad_expert_input_to_capacity};
  share_tokens(balance, groups);
  if (groups.data.size() > 1)
    balance.sum = [data = groups.data](const at::Tensor& numbers) { return summed(numbers, data); };
  model.set_balance(std::move(balance));
}

void update_router_biases(const models::LanguageModel& model, Sharded& sharded,
                          const models::RouterStatistics& statistics, double rate, const RunGroups& groups) {
  if (rate == 0) return;
  struct Layer {
    at::Tensor bias, counts;
  };
  std::vector<Layer> layers;
  Sharded::UnshardedOptions change{.write_back = true};
  for (const auto& item : model.named_modules("", /*include_self=*/false)) {
    const auto* const moe = dynamic_cast<const models::MoeMlp*>(item.value().get());
    const auto counted = moe != nullptr ? statistics.load.find(moe->index) : statistics.load.end();
    if (counted == statistics.load.end() || !moe->gate->e_score_correction_bias.defined()) continue;
    layers.push_back({moe->gate->e_score_correction_bias, counted->second});
    change.names.push_back(item.key() + ".gate.e_score_correction_bias");
  }
  if (layers.empty()) return;
  std::vector<at::Tensor> counts;
  for (const Layer& layer : layers) counts.push_back(layer.counts);
  const at::Tensor all = summed(at::stack(counts), groups.data);  // [layers, E]
  const Sharded::Unsharded whole(sharded, change);
  for (std::size_t i = 0; i < layers.size(); ++i)
    nn::update_bias(layers[i].bias, all[static_cast<std::int64_t>(i)], rate);
}

void RouterWindow::end_step(const models::RouterStatistics& statistics) {
  sums_.passes += statistics.passes;
  sums_.auxiliary_loss += statistics.auxiliary_loss;
  sums_.z_loss += statistics.z_loss;
  sums_.dropped += statistics.dropped;
  for (const auto& [block, load] : statistics.load) {
    at::Tensor& sum = sums_.load[block];
    sum = sum.defined() ? sum + load : load;
  }
}

RouterMetrics RouterWindow::close(const models::LanguageModel& model, const comm::Group& world, const RunGroups& groups,
                                  std::int64_t micro_batches) {
  const std::int64_t experts = model.balance().experts, blocks = model.shape().blocks + model.prediction_depths();
  const models::RouterStatistics own = std::exchange(sums_, {});
  RouterMetrics metrics;
  if (experts == 0) return metrics;
  at::Tensor all = at::zeros({3 + blocks * experts}, at::kDouble);  // losses, dropped tokens, counts per block
  all[0] = own.auxiliary_loss;
  all[1] = own.z_loss;
  all[2] = static_cast<double>(own.dropped);
  std::vector<at::Tensor> loads;
  for (const auto& [block, load] : own.load) loads.push_back(load);
  const at::Tensor here = loads.empty() ? at::Tensor() : at::stack(loads).cpu();  // one synchronization for all blocks
  std::int64_t row = 0;
  for (const auto& [block, load] : own.load) {
    all.slice(0, 3 + block * experts, 3 + (block + 1) * experts).copy_(here[row++]);
  }
  all = summed(all, world).cpu();
  // Ranks of tp without sequence parallelism have computed the same losses.
  const bool parts = groups.sequence_parallel && groups.tensor_ranks() > 1;
  const double same = parts ? 1 : groups.tensor_ranks();
  const double* const numbers = all.const_data_ptr<double>();
  metrics.experts = experts;
  metrics.auxiliary_loss = numbers[0] / same / static_cast<double>(micro_batches);
  metrics.z_loss = numbers[1] / same / static_cast<double>(micro_batches);
  metrics.limited = model.balance().capacity.factor > 0;
  metrics.dropped = static_cast<std::int64_t>(numbers[2] / same);
  for (std::int64_t block = 0; block < blocks; ++block) {
    const double* const counts = numbers + 3 + block * experts;
    double sum = 0;
    for (std::int64_t e = 0; e < experts; ++e) sum += counts[e];
    if (sum == 0) continue;  // a layer without experts
    auto& shares = metrics.load[block];
    for (std::int64_t e = 0; e < experts; ++e) shares.push_back(counts[e] / sum);
  }
  return metrics;
}

namespace {

class RoutersFeature : public RunFeature {
 public:
  void prepare_model(ModelBuild& build) override {
    set_up_routers(build.model, build.config.optimization, build.groups);
    moves_biases_ = build.config.optimization.router_bias_update_rate > 0;
  }
  void divided(const RunContext& run) override { run_ = &run; }
  void begin_step(const StepStart& start) override {
    run_->model->take_router_statistics();  // discards the statistics of a trial before the first step
    micro_batches_ += run_->plan.micro_batches_with_rows(start.step);
  }
  bool reads_outcome() const override { return moves_biases_; }
  void after_step(const StepEnd& end) override {
    const models::RouterStatistics statistics = run_->model->take_router_statistics();
    if (end.taken)
      update_router_biases(*run_->model, run_->sharded, statistics, run_->config.optimization.router_bias_update_rate,
                           run_->groups);
    window_.end_step(statistics);
  }
  void log(LogSums& sums) override {
    sums.add({}, [this](StepMetrics& metrics, const double*) {
      metrics.routers =
          window_.close(*run_->model, run_->world.group(), run_->groups, std::exchange(micro_batches_, 0));
    });
  }

 private:
  const RunContext* run_ = nullptr;
  RouterWindow window_;
  bool moves_biases_ = false;
  std::int64_t micro_batches_ = 0;  // micro-batches of all ranks since the last log, excluding those without rows
};

}  // namespace

std::unique_ptr<RunFeature> make_routers(const RunConfig&) { return std::make_unique<RoutersFeature>(); }

}  // namespace tessera::train
