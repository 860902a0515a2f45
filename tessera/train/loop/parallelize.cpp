#include <tessera/train/loop/parallelize.h>

#include <exception>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <tessera/config/rules/checkpointing.h>
#include <tessera/models/checkpoint_blocks.h>
#include <tessera/models/tensor_plans.h>
#include <tessera/parallel/context/attention.h>
#include <tessera/parallel/expert/experts.h>
#include <tessera/train/core/optimization.h>
#include <tessera/train/loop/sharding.h>

namespace tessera::train {
namespace {

void keep_own_stages(Setup& setup) {
  if (setup.groups.pipeline_ranks() == 1) return;
  setup.pipeline = plan_pipeline(setup.config, *setup.model);
  setup.model->keep_stages(setup.pipeline->parts_of(setup.groups.pipeline.rank()));
}

void keep_own_experts(Setup& setup) {
  const RunGroups& groups = setup.groups;
  const std::int64_t experts = setup.model->balance().experts;
  if (groups.expert_ranks() > 1) {
    const layout::Range held = held_experts(experts, groups.places_of_experts());
    setup.model->keep_experts(held.begin, held.end - held.begin);
  }
  if (groups.divides_experts() && experts > 0)
    setup.model->set_experts(groups.per_source ? expert_parallel(groups.experts, groups.per_source)
                                               : expert_parallel(groups.places_of_experts()));
}

/// How tp cuts the model; experts have a grid of their own.
layout::TensorPlan tensor_plan_of_run(const models::LanguageModel& model, const RunGroups& groups) {
  const layout::TensorPlan plan = models::tensor_plan(model);
  if (model.balance().experts == 0) return plan;
  std::vector<std::string> names;
  for (const auto& item : model.named_parameters()) names.push_back(item.key());
  return place_experts(
      plan, names, [&](const std::string& name) { return model.expert_of(name); }, model.balance().experts,
      groups.places_of_experts());
}

/// --tp_size: allocates and fills the cut parameters one by one.
void cut_tensors(Setup& setup, ParallelModel& model) {
  const RunGroups& groups = setup.groups;
  if (groups.tensor_ranks() == 1) return;
  const models::WeightSource* const weights = setup.weights.get();
  model.tensor.emplace(*setup.model,
                       TensorParallelOptions{.group = groups.tensor,
                                             .plan = tensor_plan_of_run(*setup.model, groups),
                                             .sequence_parallel = setup.config.parallel.sequence_parallel,
                                             .overlap_products = setup.config.parallel.tp_comm_overlap,
                                             .fill = [&](const std::string& name, const at::Tensor& parameter) {
                                               models::fill_parameter(name, parameter, weights);
                                             }});
  models::fill_parameters(*setup.model, weights);  // parameters that are not cut
  setup.weights.reset();
}

/// --cp_size: the queries of this rank's tokens attend to the keys of all ranks.
void attend_over_ranks(Setup& setup) {
  if (setup.groups.context_ranks() > 1) setup.model->set_attention(context_attention_function(setup.groups.context));
}

/// Describes the stages of a pipeline to the engine; the first and the last stage may share the embedding.
void add_stages(const Setup& setup, ShardingOptions& options) {
  const RunGroups& groups = setup.groups;
  if (groups.stages && groups.stages.size() > 1) options.stages = groups.stages;
  if (!setup.pipeline) return;
  // In fixed order every backward is reduced, and each belongs to one of several stages.
  if (setup.config.parallel.deterministic_reduce && setup.pipeline->parts_of(groups.pipeline.rank()).size() > 1)
    options.find_unused_parameters = true;
  const std::string tied = setup.model->tied_parameter();
  const auto& rank_of = setup.pipeline->schedule.rank_of;
  if (!tied.empty() && groups.pipeline.rank() == rank_of.back() && rank_of.front() != rank_of.back())
    options.held_by_earlier_stage = {tied};
}

/// Describes the experts to the engine: ranks with different experts hold the same non-expert parameters.
void add_experts(const Setup& setup, ShardingOptions& options) {
  const RunGroups& groups = setup.groups;
  if (groups.beside && groups.beside.size() > 1)
    options.shared_by_experts = {groups.beside,
                                 [model = setup.model](const std::string& name) { return !model->expert_of(name); },
                                 groups.per_source};
  if (!groups.beside || groups.beside.rank() == 0) return;
  options.held_by_earlier_stage.clear();
  for (const auto& item : setup.model->named_parameters())
    if (!setup.model->expert_of(item.key())) options.held_by_earlier_stage.push_back(item.key());
}

/// Data parallelism: replicas, or shards of states, gradients and parameters.
void shard(Setup& setup, ParallelModel& model) {
  ShardingOptions options = sharding_options(setup.config, *setup.model, setup.groups.engine);
  add_stages(setup, options);
  add_experts(setup, options);
  options.before_reduction = setup.parts.before_reduction;
  bool filled = false;            // stays false if the engine does not divide the model
  std::exception_ptr unreadable;  // thrown after all ranks have finished the collectives of dividing
  if (setup.weights)
    options.load = [&](const std::string& name, at::IntArrayRef, std::int64_t begin, at::Tensor piece) {
      filled = true;
      if (unreadable) return true;
      try {
        return setup.weights->read(name, begin, piece);
      } catch (...) {
        unreadable = std::current_exception();
        return true;
      }
    };
  model.core.divide(setup.model, std::move(options), make_loss_scale(setup.config.optimization));
  if (unreadable) std::rethrow_exception(unreadable);
  if (setup.weights && !filled)
    for (const auto& item : setup.model->named_parameters()) setup.weights->read(item.key(), 0, item.value().detach());
  setup.weights.reset();
}

/// --gradient_checkpointing
void recompute_activations(Setup& setup, ParallelModel& model) {
  if (setup.xla) return;  // a compiled step recomputes by itself, behind barriers (xla/step/gradient_program.h)
  if (setup.config.optimization.gradient_checkpointing)
    model.checkpointing = models::checkpoint_blocks(
        *setup.model, config::parse_checkpoint_plan(setup.config.optimization.gradient_checkpointing_kwargs));
}

}  // namespace

void keep_own_parts(Setup& setup) {
  keep_own_stages(setup);   // pp
  keep_own_experts(setup);  // ep
}

void parallelize(Setup& setup, ParallelModel& model) {
  cut_tensors(setup, model);  // tp
  check_same_quantized(*setup.model, setup.groups.engine);
  attend_over_ranks(setup);             // cp
  shard(setup, model);                  // dp group of this rank's stages and experts
  recompute_activations(setup, model);  // around blocks whose parameters the engine gathers
}

}  // namespace tessera::train
