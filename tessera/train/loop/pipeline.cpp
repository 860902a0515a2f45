#include <tessera/train/loop/pipeline.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/core/run_schedule.h>
#include <tessera/layout/schedule/cut.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/pipeline/stage_runner.h>
#include <tessera/train/core/precision.h>
#include <tessera/train/loop/evaluate.h>

namespace tessera::train {
namespace schedule = layout::schedule;

std::vector<layout::StagePart> PipelinePlan::parts_of(int rank) const {
  std::vector<layout::StagePart> parts;
  for (const int stage : schedule::stages_of(schedule, rank)) parts.push_back(stages[static_cast<std::size_t>(stage)]);
  return parts;
}

namespace {

/// In fixed order a stage adds gradients in the order of its backward passes, and the sum must equal that of one
/// process.
void check_backward_order(const schedule::Schedule& of_run, const std::string& name) {
  for (const std::vector<schedule::Action>& actions : of_run.ranks) {
    std::map<int, int> next;  // micro-batch, by stage
    for (const schedule::Action& action : actions) {
      if (action.kind != schedule::Kind::backward && action.kind != schedule::Kind::input_gradient) continue;
      if (action.micro_batch != next[action.stage]++)
        throw InputError(concat("--deterministic_reduce: the schedule ", name, " has ", schedule::text_of(action),
                                " where micro-batch ", next[action.stage] - 1, " of stage ", action.stage,
                                " should come: sums in fixed order need the backward passes of a stage in the order of "
                                "the micro-batches"));
    }
  }
}

}  // namespace

PipelinePlan plan_pipeline(const RunConfig& config, const models::LanguageModel& model) {
  PipelinePlan plan{.schedule = config::run_schedule(config),
                    .stages = {},
                    .depths = model.predicts() ? model.prediction_depths() : 0};
  if (config.parallel.deterministic_reduce) check_backward_order(plan.schedule, config.parallel.pipeline_schedule);
  const int stages = plan.schedule.stages();
  const std::int64_t blocks = model.shape().blocks;
  const std::string& asked = config.parallel.pipeline_layout;
  if (layout::is_layout_word(asked))
    plan.stages = schedule::cut_for_schedule(
        architectures::chain_flops(model.spec(), plan.depths, asked == layout::layout_by_half_blocks), plan.schedule);
  else if (asked.empty())
    plan.stages = layout::cut_evenly(blocks, stages, 0, static_cast<double>(plan.depths));
  else
    plan.stages = layout::parse_stage_layout(asked, blocks, stages, model.prediction_depths());
  config::check_shares(plan.stages, plan.schedule.rank_of);
  return plan;
}

namespace {

/// Names of the parameters that each of this rank's stages needs. The embeddings and the end may be one unit of the
/// engine, so a stage with either takes both. Depths of multi-token prediction, numbered after the blocks, are part of
/// the end.
std::map<int, std::vector<std::string>> names_by_stage(const PipelinePlan& plan, int rank,
                                                       const models::LanguageModel& model, const Sharded& sharded) {
  std::map<std::string, std::int64_t> blocks;  // "model.layers.3." -> 3
  for (const models::ModelPart& part : model.parts())
    if (part.kind == models::ModelPart::Kind::block) blocks[part.name + "."] = part.block;
  const auto block_of = [&](const std::string& name) {
    for (const auto& [prefix, block] : blocks)
      if (name.starts_with(prefix)) return block;
    return std::int64_t{-1};
  };
  const std::int64_t own_blocks = model.shape().blocks;
  std::map<int, std::vector<std::string>> names;
  const auto add = [&](const std::vector<ShardedParameter>& parameters) {
    for (const int stage : schedule::stages_of(plan.schedule, rank)) {
      const layout::StagePart& part = plan.stages[static_cast<std::size_t>(stage)];
      std::vector<std::string>& own = names[stage];
      for (const ShardedParameter& p : parameters) {
        const std::int64_t block = block_of(p.name);
        const bool here = block < 0             ? part.embeddings || part.end
                          : block >= own_blocks ? part.end
                                                : block >= part.first_block && block < part.past_block();
        if (here) own.push_back(p.name);
      }
    }
  };
  add(sharded.named_parameters());
  add(sharded.frozen_parameters());
  return names;
}

}  // namespace

std::string describe(const PipelinePlan& plan) {
  std::string text = concat(plan.schedule.name.empty() ? "schedule from a file" : plan.schedule.name, ", ",
                            plan.schedule.micro_batches, " micro-batches");
  for (int rank = 0; rank < static_cast<int>(plan.schedule.ranks.size()); ++rank) {
    std::vector<std::string> parts;
    for (const layout::StagePart& part : plan.parts_of(rank)) {
      parts.push_back(text_of(part));
      if (part.end && plan.depths > 0)
        parts.back() +=
            concat(" with ", plan.depths, plan.depths == 1 ? " depth" : " depths", " of multi-token prediction");
    }
    text += concat("; rank ", rank, ": ", join(parts, " and "));
  }
  return text;
}

/// The inputs of the stages' functions, and the runner that calls them.
class PassesOfBatch {
 public:
  std::vector<data::Batch> batches;
  std::vector<double> scales;
  std::optional<at::ScalarType> narrow;
  models::KvCache* cache = nullptr;  ///< not null: computes next_logits() of batches[0]
  std::int64_t parts_of_rows = 1;    ///< number of parts into which the ranks of tp split the tokens between stages
  std::optional<parallel::StageRunner> runner;
};

RunPipeline::RunPipeline(PipelinePlan plan, const RunConfig& config, const RunGroups& groups,
                         models::LanguageModel& model, Sharded& sharded, std::function<void(bool)> enter)
    : plan_(std::move(plan)),
      config_(config),
      groups_(groups),
      model_(model),
      enter_(std::move(enter)),
      passes_(std::make_unique<PassesOfBatch>()) {
  parallel::PipelineOptions options{.group = groups_.pipeline, .back = groups_.back};
  for (const int stage : schedule::stages_of(plan_.schedule, groups_.pipeline.rank()))
    options.stages[stage].forward = [this, part = plan_.stages[static_cast<std::size_t>(stage)]](
                                        int micro_batch, const at::Tensor& input) {
      const auto i = static_cast<std::size_t>(micro_batch);
      const nn::Autocast precision(passes_->narrow, groups_.pipeline.device().type());
      if (passes_->cache != nullptr)
        return dynamic_cast<models::CausalLm&>(model_).next_in_stage(passes_->batches[i].ids, *passes_->cache, part,
                                                                     input);
      return model_.run_stage(passes_->batches[i], part, input, passes_->scales[i]);
    };
  options.sizes = [this](int micro_batch) {
    const at::Tensor& ids = passes_->batches[static_cast<std::size_t>(micro_batch)].ids;
    return std::vector<std::int64_t>{ids.size(0), ids.size(1) / passes_->parts_of_rows, model_.shape().width};
  };
  options.undivided = config_.parallel.deterministic_reduce;
  options.enter = [this](const schedule::Action& action) {
    enter_(action.kind == schedule::Kind::forward);
    if (tied_) tied_->enter(action);
  };
  options.leave = [this](const schedule::Action&) {
    if (tied_) tied_->leave();
  };
  watch_tied_parameter(sharded.options());
  passes_->runner.emplace(std::move(options), plan_.schedule.rank_of.back());
  if (config_.parallel.pipeline_gather == PipelineGather::per_batch && sharded.shard_ranks() > 1 &&
      row_of(sharded.options().strategy).shard_parameters)
    passes_->runner->gather_per_batch(sharded, names_by_stage(plan_, groups_.pipeline.rank(), model_, sharded));
  if (auto* const causal = dynamic_cast<models::CausalLm*>(&model_))
    causal->set_next_logits([this](const at::Tensor& ids, models::KvCache& cache) { return next_logits(ids, cache); });
}

/// Compressed sums need no particular order. Sums beyond the engine's group need one with deterministic_reduce, where
/// the parts are joined before the reduction.
void RunPipeline::watch_tied_parameter(const ShardingOptions& sharding) {
  const auto parameters = model_.named_parameters();
  const at::Tensor* const tied = parameters.find(model_.tied_parameter());
  const bool fixed_order = config_.parallel.deterministic_reduce;
  const bool plain = !sharding.compression && !sharding.reduce_dtype && sharding.gradient_predivide_factor == 1 &&
                     (fixed_order || !sharding.shared_by_experts.ranks);
  if (tied == nullptr || !tied->requires_grad() || !plain) return;
  const parallel::TiedGradient::Options options{.group = groups_.tied,
                                                .first_rank = plan_.schedule.rank_of.front(),
                                                .last_rank = plan_.schedule.rank_of.back(),
                                                .last_stage = plan_.schedule.stages() - 1,
                                                .fixed_order = fixed_order};
  if (parallel::TiedGradient::needed(options)) tied_.emplace(*tied, options);
}

RunPipeline::~RunPipeline() {
  if (auto* const causal = dynamic_cast<models::CausalLm*>(&model_)) causal->set_next_logits(nullptr);
}

void RunPipeline::prepare(const std::vector<data::Batch>& batches, double scale) {
  passes_->batches.clear();
  for (const data::Batch& batch : batches) passes_->batches.push_back(to_device(batch, groups_.pipeline.device()));
  passes_->scales.assign(batches.size(), scale);
  passes_->narrow = training_precision(config_);
  passes_->parts_of_rows = groups_.sequence_parallel ? groups_.tensor_ranks() : 1;
}

void RunPipeline::rehearse(const std::vector<data::Batch>& batches) {
  prepare(batches, 0);
  passes_->runner->executor().rehearse(schedule_of(batches.size()));
  passes_->batches.clear();
  model_.take_prediction_losses();
  if (tied_) tied_->forget();
}

std::vector<double> RunPipeline::train(const std::vector<data::Batch>& batches, double scale) {
  prepare(batches, scale);
  const std::vector<double> losses = losses_of(schedule_of(batches.size()));
  if (tied_) tied_->end_batch();
  measured_ = passes_->runner->executor().measured();
  measured_micro_batches_ = static_cast<int>(batches.size());
  return losses;
}

const schedule::Schedule& RunPipeline::schedule_of(std::size_t micro_batches) {
  const auto number = static_cast<int>(micro_batches);
  if (number == plan_.schedule.micro_batches) return plan_.schedule;
  const auto known = others_.find(number);
  if (known != others_.end()) return known->second;
  return others_.emplace(number, config::run_schedule(config_, number)).first->second;
}

std::vector<double> RunPipeline::evaluate(const std::vector<data::Batch>& batches, const std::vector<double>& scales) {
  passes_->batches = batches;
  passes_->scales = scales;
  passes_->narrow = evaluation_precision(config_);
  passes_->parts_of_rows = 1;
  std::vector<double> losses = losses_of(schedule::forward_only(plan_.schedule, static_cast<int>(batches.size())));
  if (model_.num_labels() == 0) return losses;
  const comm::Tag tag("predictions");
  const int last = plan_.schedule.rank_of.back();
  std::vector<at::Tensor> classes = model_.take_predictions();
  for (std::size_t i = 0; i < batches.size(); ++i) {
    if (groups_.pipeline.rank() != last)
      classes.push_back(at::empty({batches[i].ids.size(0)}, batches[i].ids.options()));
    groups_.pipeline.broadcast(classes[i], last).wait();
  }
  model_.set_predictions(std::move(classes));
  return losses;
}

at::Tensor RunPipeline::next_logits(const at::Tensor& ids, models::KvCache& cache) {
  data::Batch batch;
  batch.ids = ids;
  passes_->batches = {batch};
  passes_->narrow.reset();  // the caller's autocast type, if any, stays in effect
  passes_->parts_of_rows = 1;
  passes_->cache = &cache;
  const std::vector<at::Tensor> own = passes_->runner->run(schedule::forward_only(plan_.schedule, 1));
  passes_->cache = nullptr;
  passes_->batches.clear();
  cache.add_tokens(ids.size(1));
  const int last = plan_.schedule.rank_of.back();
  const at::Tensor logits =
      groups_.pipeline.rank() == last
          ? own.front().contiguous()
          : at::empty({ids.size(0), model_.vocab_size()}, at::TensorOptions(at::kFloat).device(ids.device()));
  const comm::Tag tag("logits");
  groups_.pipeline.broadcast(logits, last).wait();
  if (!std::isfinite(logits.sum(at::kDouble).item<double>()))
    if (const std::string where = first_not_finite(groups_.pipeline); !where.empty())
      throw Error(
          concat("the model's logits are not finite (", where, "): the weights are damaged or the training diverged"));
  return logits;
}

std::vector<double> RunPipeline::losses_of(const schedule::Schedule& schedule) {
  std::vector<double> losses = passes_->runner->losses_of(schedule);
  passes_->batches.clear();
  return losses;
}

std::string RunPipeline::drawing() {
  return parallel::draw_measured(groups_.pipeline, schedule_of(static_cast<std::size_t>(measured_micro_batches_)),
                                 measured_);
}

std::string RunPipeline::first_not_finite(const comm::Group& group) const {
  return passes_->runner->first_not_finite(group);
}

void RunPipeline::add_tied_gradients(Sharded& sharded) {
  if (tied_) tied_->add_to(sharded, model_.tied_parameter());
  parallel::add_tied_gradients(sharded, model_.tied_parameter(), groups_.pipeline, plan_.schedule.rank_of.front(),
                               plan_.schedule.rank_of.back());
}

}  // namespace tessera::train
