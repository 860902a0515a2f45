#include <tessera/parallel/pipeline/pipeline_parallel.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/optim/norm.h>
#include <tessera/parallel/deferred/deferred.h>
#include <tessera/parallel/dispatch/hash.h>
#include <tessera/parallel/pipeline/layer_chain.h>
#include <tessera/parallel/pipeline/measure_layers.h>
#include <tessera/parallel/pipeline/observed_chain.h>
#include <tessera/parallel/pipeline/stage_plan.h>
#include <tessera/parallel/pipeline/stage_runner.h>
#include <tessera/parallel/pipeline/tied_embedding.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

namespace tessera {

using layout::schedule::Gathering;
using layout::schedule::Schedule;

namespace {

/// A parameter shared by layers of several ranks.
struct TiedParameter {
  std::string name;
  at::Tensor parameter;
  std::vector<int> holders;  // in the order of their first stages
};

std::vector<TiedParameter> find_tied(const parallel::LayerTensors& tensors, const parallel::StagePlan& plan) {
  std::vector<TiedParameter> found;  // in order of first appearance
  for (std::size_t stage = 0; stage < plan.layers.size(); ++stage)
    for (std::size_t i = plan.layers[stage].first; i < plan.layers[stage].second; ++i)
      for (const auto& item : tensors.of_layer[i]) {
        if (item.is_buffer) continue;
        auto known = std::find_if(found.begin(), found.end(),
                                  [&](const auto& other) { return other.parameter.is_same(item.tensor); });
        if (known == found.end()) known = found.insert(found.end(), {item.name, item.tensor, {}});
        const int rank = plan.rows[stage].rank;
        if (std::find(known->holders.begin(), known->holders.end(), rank) == known->holders.end())
          known->holders.push_back(rank);
      }
  std::erase_if(found, [](const TiedParameter& tied) { return tied.holders.size() < 2; });
  return found;
}

/// Everything that must be equal on all ranks.
std::string fingerprint(const parallel::LayerChain& chain, const parallel::LayerTensors& tensors,
                        const PipelineParallelOptions& options) {
  std::string all;
  std::int64_t parameters = 0, elements = 0;
  std::set<const c10::TensorImpl*> seen;
  for (std::size_t i = 0; i < tensors.of_layer.size(); ++i) {
    all += concat(chain.layers()[i].name, "\n");
    for (const auto& item : tensors.of_layer[i]) {
      all += concat(item.name, " ", item.tensor.sizes(), " ", c10::toString(item.tensor.scalar_type()), " ",
                    item.tensor.requires_grad(), "\n");
      if (item.is_buffer || !seen.insert(item.tensor.unsafeGetTensorImpl()).second) continue;
      ++parameters;
      elements += item.tensor.numel();
    }
  }
  for (const double cost : options.cut.costs_of_layers) all += concat(cost, "\n");
  for (const std::string& name : options.cut.first_layers) all += concat(name, "\n");
  return concat(tensors.of_layer.size(), " layers, ", parameters, " parameters of ", elements, " elements, schedule ",
                options.schedule, ", ", options.micro_batches, " micro-batches (",
                parallel::hash_bytes(all.data(), all.size()), ")");
}

/// Cuts a batch into micro-batches along its rows.
std::vector<at::Tensor> cut_rows(const at::Tensor& batch, int micro_batches, bool variable, const char* what) {
  if (!batch.defined()) return {};
  if (batch.dim() == 0 || batch.size(0) < micro_batches || (batch.size(0) % micro_batches != 0 && !variable))
    throw InputError(concat("pipeline: ", what, " of sizes ", batch.sizes(), " cannot be cut along dimension 0 into ",
                            micro_batches, " micro-batches; give a multiple of that many rows",
                            batch.dim() != 0 && batch.size(0) > micro_batches
                                ? ", or allow sizes to differ (variable_sizes)"
                                : ", or fewer micro-batches"));
  return batch.tensor_split(micro_batches, 0);
}

}  // namespace

struct PipelineParallel::Impl {
  Impl(std::unique_ptr<parallel::LayerChain> the_chain, PipelineParallelOptions the_options);

  void check_tied_values() const;
  parallel::PipelineOptions executor_options();
  at::Tensor run_stage(int stage, int micro_batch, const at::Tensor& input);
  void set_batch(std::vector<at::Tensor> the_inputs, std::vector<at::Tensor> the_targets, bool with_loss);
  std::vector<at::Tensor> cut(const at::Tensor& batch, const char* what) const {
    return cut_rows(batch, plan.schedule.micro_batches, options.variable_sizes, what);
  }
  double loss_of(const Schedule& schedule);
  double train(std::vector<at::Tensor> the_inputs, std::vector<at::Tensor> the_targets);
  void attach(Sharded& engine);
  double clip(double max_norm);

  bool has_first() const { return rank == plan.schedule.rank_of.front(); }
  bool has_last() const { return rank == plan.schedule.rank_of.back(); }

  PipelineParallelOptions options;
  std::unique_ptr<parallel::LayerChain> chain;
  parallel::LayerTensors tensors;
  int rank = 0;
  parallel::StagePlan plan;
  std::vector<TiedParameter> tied;  // the same on every rank
  std::optional<parallel::LetGo> drop_layers;
  Sharded* sharded = nullptr;
  std::optional<parallel::StageRunner> runner;

  // The current batch.
  std::vector<at::Tensor> inputs, targets;
  std::vector<double> weights;  // weight of each loss; empty: the outputs are requested instead
};

PipelineParallel::Impl::Impl(std::unique_ptr<parallel::LayerChain> the_chain, PipelineParallelOptions the_options)
    : options(std::move(the_options)), chain(std::move(the_chain)) {
  if (!options.group) options.group = world().group();
  if (options.loss_reduction != comm::Reduction::mean && options.loss_reduction != comm::Reduction::sum)
    throw InputError("pipeline: loss_reduction must be mean or sum");
  rank = options.group.rank();
  tensors = tensors_of(*chain);
  comm::require_equal(options.group, "the pipeline's module", fingerprint(*chain, tensors, options),
                      "construct the same module with the same options on every rank");
  plan = plan_stages(*chain, tensors, options);
  tied = find_tied(tensors, plan);
  check_tied_values();
  const std::vector<bool> kept = plan.kept_by(rank);
  drop_layers.emplace(*chain, tensors, kept, plan.places());
  for (std::size_t i = 0; i < kept.size(); ++i)
    if (!kept[i]) tensors.of_layer[i].clear();
  for (TiedParameter& one : tied)
    if (std::find(one.holders.begin(), one.holders.end(), rank) == one.holders.end()) one.parameter = at::Tensor();
  runner.emplace(executor_options(), plan.schedule.rank_of.back());
}

/// For other parameters, different seeds do no harm, because no two ranks hold the same layer. Copies of tied
/// parameters would silently diverge.
void PipelineParallel::Impl::check_tied_values() const {
  if (tied.empty()) return;
  std::vector<std::int64_t> hashes;
  for (const TiedParameter& one : tied) {
    std::int64_t hash = 0;
    if (std::find(one.holders.begin(), one.holders.end(), rank) != one.holders.end()) {
      const at::NoGradGuard no_grad;
      at::Tensor copy = one.parameter.detach().clone();  // a deferred parameter stays deferred
      parallel::materialize({copy});
      copy = copy.cpu().contiguous();
      hash = static_cast<std::int64_t>(parallel::hash_bytes(copy.const_data_ptr(), copy.nbytes()));
    }
    hashes.push_back(hash);
  }
  const auto all = comm::all_gather_numbers(options.group, hashes);
  for (std::size_t i = 0; i < tied.size(); ++i)
    for (const int holder : tied[i].holders)
      if (const int first = tied[i].holders.front();
          all[static_cast<std::size_t>(holder)][i] != all[static_cast<std::size_t>(first)][i])
        throw InputError(concat("pipeline: tied parameter '", tied[i].name, "' has different values on rank ", holder,
                                " than on rank ", first, "; construct the module with the same seed on every rank"));
}

parallel::PipelineOptions PipelineParallel::Impl::executor_options() {
  parallel::PipelineOptions result{.group = options.group, .back = options.back};
  result.variable_sizes = options.variable_sizes;
  for (const int stage : stages_of(plan.schedule, rank))
    result.stages[stage].forward = [this, stage](int micro_batch, const at::Tensor& input) {
      return run_stage(stage, micro_batch, input);
    };
  return result;
}

at::Tensor PipelineParallel::Impl::run_stage(int stage, int micro_batch, const at::Tensor& input) {
  const auto i = static_cast<std::size_t>(micro_batch);
  const auto [first, past] = plan.layers[static_cast<std::size_t>(stage)];
  const at::Tensor batch = stage == 0 || chain->needs_batch() ? inputs.at(i) : at::Tensor();
  // Empty stages before the first layer pass their input on.
  at::Tensor output = chain->run(first, past, stage == 0 ? batch : first == 0 ? input : batch, input);
  if (stage + 1 < plan.schedule.stages() || weights.empty()) return output;
  output = options.loss(output, targets.at(i));
  if (!output.defined() || output.numel() != 1)
    throw InputError(concat("the loss function returned ",
                            output.defined() ? concat("a tensor of sizes ", output.sizes()) : "no tensor",
                            "; it must return one element"));
  return weights[i] == 1 ? output : output * weights[i];
}

void PipelineParallel::Impl::set_batch(std::vector<at::Tensor> the_inputs, std::vector<at::Tensor> the_targets,
                                       bool with_loss) {
  const auto count = static_cast<std::size_t>(plan.schedule.micro_batches);
  const auto check = [&](const std::vector<at::Tensor>& given, const char* what, const char* why) {
    if (given.size() == count && std::all_of(given.begin(), given.end(), [](const auto& t) { return t.defined(); }))
      return;
    throw InputError(concat("pipeline: ", given.size(), " micro-batches of ", what, " on rank ", rank, ", which has ",
                            why, "; pass ", count, " defined tensors there, or a batch to cut"));
  };
  if (has_first() || chain->needs_batch())
    check(the_inputs, "inputs", chain->needs_batch() ? "to receive them, like all ranks" : "the first stage");
  weights.clear();
  if (with_loss && has_last()) {
    check(the_targets, "targets", "the last stage");
    if (!options.loss)
      throw InputError(
          "pipeline: no loss function was given (PipelineParallelOptions::loss), which the rank of the "
          "last stage calls");
    double rows = 0;
    for (const at::Tensor& target : the_targets) {
      weights.push_back(target.dim() == 0 ? 1 : static_cast<double>(target.size(0)));
      rows += weights.back();
    }
    for (double& weight : weights) weight = options.loss_reduction == comm::Reduction::sum ? 1 : weight / rows;
  }
  inputs = std::move(the_inputs);
  targets = std::move(the_targets);
}

/// Sum over the micro-batches, on every rank.
double PipelineParallel::Impl::loss_of(const Schedule& schedule) {
  const std::vector<double> losses = runner->losses_of(schedule);
  inputs.clear();
  targets.clear();
  return std::accumulate(losses.begin(), losses.end(), 0.0);
}

double PipelineParallel::Impl::train(std::vector<at::Tensor> the_inputs, std::vector<at::Tensor> the_targets) {
  set_batch(std::move(the_inputs), std::move(the_targets), true);
  double loss = 0;
  if (sharded != nullptr) {
    {
      const Sharded::AccumulateLocally together(*sharded);
      loss = loss_of(plan.schedule);
    }
    sharded->reduce();
    for (const TiedParameter& one : tied)
      parallel::add_tied_gradients(*sharded, one.name, options.group, one.holders.front(), one.holders.back());
  } else {
    loss = loss_of(plan.schedule);
    for (const TiedParameter& one : tied)
      if (one.parameter.defined() && one.parameter.requires_grad())
        parallel::add_tied_gradients(one.parameter, options.group, one.holders);
  }
  return loss;
}

void PipelineParallel::Impl::attach(Sharded& engine) {
  const ShardingOptions& given = engine.options();
  const StrategyRow& strategy = row_of(given.strategy);
  std::set<std::string> mine, engines;
  for (const auto& items : tensors.of_layer)
    for (const auto& item : items)
      if (!item.is_buffer && item.tensor.requires_grad()) mine.insert(item.name);
  for (const ShardedParameter& parameter : engine.named_parameters()) engines.insert(parameter.name);
  if (mine != engines)
    throw InputError(concat("pipeline: attach() was given an engine with ", engines.size(),
                            " trained parameters, but this rank's stages have ", mine.size(),
                            ": construct tessera::Sharded around the same module, after the pipeline"));
  if (options.group.size() > 1 && (!given.stages || given.stages.size() != options.group.size()))
    throw InputError(
        "pipeline: attach() was given an engine that does not know the other stages, so its norms would "
        "cover one rank only; construct it with .stages = the pipeline's group");
  for (const TiedParameter& one : tied) {
    if (one.holders.size() > 2)
      throw InputError(
          concat("pipeline: parameter '", one.name, "' is tied across ", one.holders.size(),
                 " ranks; a sharding engine supports at most 2: cut the model so that fewer ranks use it"));
    const bool later = one.holders.back() == rank;
    if (later && std::count(given.held_by_earlier_stage.begin(), given.held_by_earlier_stage.end(), one.name) == 0)
      throw InputError(
          concat("pipeline: rank ", one.holders.front(), " has parameter '", one.name,
                 "' as well, and its engine counts it; construct this rank's engine with .held_by_earlier_stage = "
                 "PipelineParallel::held_by_earlier_stage()"));
  }
  if (options.gathering == Gathering::per_batch && !strategy.shard_parameters)
    throw InputError(concat("pipeline: gathering once per batch has no effect under strategy '",
                            word_of<Strategy>(given.strategy),
                            "', which keeps parameters whole; remove it, or choose a strategy that shards parameters "
                            "(full_shard)"));
  sharded = &engine;
  if (options.gathering != Gathering::per_batch) return;
  std::map<int, std::vector<std::string>> names;
  for (const int stage : stages_of(plan.schedule, rank)) {
    names[stage];
    const auto [first, past] = plan.layers[static_cast<std::size_t>(stage)];
    for (std::size_t i = first; i < past; ++i)
      for (const auto& item : tensors.of_layer[i])
        if (!item.is_buffer) names[stage].push_back(item.name);
  }
  runner->gather_per_batch(engine, std::move(names));
}

double PipelineParallel::Impl::clip(double max_norm) {
  if (sharded != nullptr) return sharded->clip_grad_norm(max_norm);
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> gradients;
  std::vector<optim::GradientPiece> counted;
  std::set<const c10::TensorImpl*> seen;
  std::string damaged;
  for (const auto& items : tensors.of_layer)
    for (const auto& item : items) {
      if (item.is_buffer || !item.tensor.grad().defined() || !seen.insert(item.tensor.unsafeGetTensorImpl()).second)
        continue;
      gradients.push_back(item.tensor.grad());
      if (damaged.empty() && !at::isfinite(gradients.back()).all().item<bool>()) damaged = item.name;
      const auto shared = std::find_if(tied.begin(), tied.end(), [&](const auto& t) { return t.name == item.name; });
      if (shared == tied.end() || shared->holders.front() == rank) counted.push_back({gradients.back(), 0});
    }
  const comm::Tag tag("gradient norm");
  const double norm = optim::gradient_norm(
      counted, [&](std::vector<std::int64_t>& words) { comm::all_reduce_numbers(options.group, words); });
  if (!std::isfinite(norm)) {
    const std::vector<std::string> by_rank = comm::all_gather_text(options.group, damaged);
    std::string where;
    for (std::size_t r = 0; r < by_rank.size() && where.empty(); ++r)
      if (!by_rank[r].empty()) where = concat(": first in the gradient of '", by_rank[r], "' on rank ", r);
    if (const std::string source = runner->first_not_finite(options.group); !source.empty())
      where += concat(" (", source, ")");
    throw Error(concat("pipeline: the gradient norm is ", norm, where,
                       "; the run diverged (lower the learning rate, clip earlier) or its data is damaged"));
  }
  const double factor = optim::clip_coefficient(norm, max_norm);
  if (factor != 1)
    for (const at::Tensor& gradient : gradients) gradient.mul_(factor);
  return norm;
}

PipelineParallel::PipelineParallel(torch::nn::SequentialImpl& sequential, PipelineParallelOptions options)
    : impl_(std::make_unique<Impl>(parallel::chain_of(sequential), std::move(options))) {}
PipelineParallel::PipelineParallel(torch::nn::Module& module, std::vector<PipelineLayer> layers,
                                   PipelineParallelOptions options)
    : impl_(std::make_unique<Impl>(parallel::chain_of(module, std::move(layers)), std::move(options))) {}
PipelineParallel::PipelineParallel(torch::nn::Module& module, std::function<at::Tensor(const at::Tensor&)> forward,
                                   at::Tensor sample, PipelineParallelOptions options)
    : impl_(std::make_unique<Impl>(parallel::observe_chain(module, std::move(forward), sample), std::move(options))) {}
PipelineParallel::PipelineParallel(PipelineParallel&&) noexcept = default;
PipelineParallel::~PipelineParallel() = default;

double PipelineParallel::train_batch(const at::Tensor& inputs, const at::Tensor& targets) {
  std::vector<at::Tensor> first = impl_->cut(inputs, "inputs");
  return impl_->train(std::move(first), impl_->cut(targets, "targets"));
}
double PipelineParallel::train_batch(std::vector<at::Tensor> inputs, std::vector<at::Tensor> targets) {
  return impl_->train(std::move(inputs), std::move(targets));
}

double PipelineParallel::evaluate_batch(const at::Tensor& inputs, const at::Tensor& targets) {
  std::vector<at::Tensor> first = impl_->cut(inputs, "inputs");
  impl_->set_batch(std::move(first), impl_->cut(targets, "targets"), true);
  return impl_->loss_of(forward_only(impl_->plan.schedule));
}

at::Tensor PipelineParallel::forward_batch(const at::Tensor& inputs, bool everywhere) {
  impl_->set_batch(impl_->cut(inputs, "inputs"), {}, false);
  const std::vector<at::Tensor> outputs = impl_->runner->run(forward_only(impl_->plan.schedule));
  impl_->inputs.clear();
  at::Tensor output;
  if (impl_->has_last()) {
    if (outputs.front().dim() == 0)
      throw InputError(
          "pipeline: the last layer returns one number per micro-batch, so there are no rows to join; "
          "use evaluate_batch() for losses");
    output = at::cat(outputs, 0);
  }
  if (!everywhere) return output;
  const comm::Tag tag("outputs");
  return parallel::share_tensor(impl_->options.group, impl_->plan.schedule.rank_of.back(), output);
}

void PipelineParallel::attach(Sharded& sharded) { impl_->attach(sharded); }
double PipelineParallel::clip_grad_norm(double max_norm) { return impl_->clip(max_norm); }
const Schedule& PipelineParallel::schedule() const { return impl_->plan.schedule; }
const std::vector<PipelineStageRow>& PipelineParallel::stages() const { return impl_->plan.rows; }
std::string PipelineParallel::describe() const { return parallel::describe(impl_->plan); }
const std::vector<layout::schedule::TimedAction>& PipelineParallel::measured() const {
  return impl_->runner->executor().measured();
}

std::vector<std::string> PipelineParallel::held_by_earlier_stage() const {
  std::vector<std::string> names;
  for (const TiedParameter& one : impl_->tied)
    if (one.holders.front() != impl_->rank && one.parameter.defined()) names.push_back(one.name);
  return names;
}

}  // namespace tessera
