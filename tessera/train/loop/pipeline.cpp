#include <tessera/train/loop/pipeline.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <tuple>
#include <utility>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/comm/agree.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/world.h>
#include <tessera/config/core/run_config.h>
#include <tessera/config/core/run_schedule.h>
#include <tessera/layout/schedule/cut.h>
#include <tessera/layout/schedule/draw.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/pipeline/executor.h>
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

/// In fixed order a stage's gradients join their sum as its backwards come, and its sum is to be that of one process.
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

/// What of this rank's parameters each of its stages needs. Embeddings and end may be one unit of the engine's, so each
/// stage that has either takes both. Depths of multi-token prediction, whose numbers follow those of the blocks, are
/// part of the end.
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
  std::string text = concat(plan.schedule.name.empty() ? "schedule of a file" : plan.schedule.name, ", ",
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

/// What the stages' functions work on, and who calls them.
class PassesOfBatch {
 public:
  std::vector<data::Batch> batches;
  std::vector<double> scales;
  std::optional<at::ScalarType> narrow;
  models::KvCache* cache = nullptr;  ///< not null: next_logits() of batches[0]
  std::int64_t parts_of_rows = 1;    ///< between stages each rank of tp has such a part of the tokens
  std::optional<parallel::PipelineExecutor> executor;
};

RunPipeline::RunPipeline(PipelinePlan plan, const RunConfig& config, const RunGroups& groups,
                         models::LanguageModel& model, Sharded& sharded, std::function<void(bool)> enter)
    : plan_(std::move(plan)),
      config_(config),
      groups_(groups),
      model_(model),
      enter_(std::move(enter)),
      passes_(std::make_unique<PassesOfBatch>()) {
  if (config_.parallel.pipeline_gather == PipelineGather::per_batch && sharded.shard_ranks() > 1 &&
      row_of(sharded.options().strategy).shard_parameters)
    gathers_.emplace(sharded, names_by_stage(plan_, groups_.pipeline.rank(), model_, sharded));
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
  options.sharding = [this](const schedule::Action& action) {
    if (gathers_) gathers_->act(action);
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
  passes_->executor.emplace(std::move(options));
  if (auto* const causal = dynamic_cast<models::CausalLm*>(&model_))
    causal->set_next_logits([this](const at::Tensor& ids, models::KvCache& cache) { return next_logits(ids, cache); });
}

/// Sums that are compressed have no order that could be kept. Those that go beyond the engine's group have one in fixed
/// order, where the parts join before the reduction.
void RunPipeline::watch_tied_parameter(const ShardingOptions& sharding) {
  const auto parameters = model_.named_parameters();
  const at::Tensor* const tied = parameters.find(model_.tied_parameter());
  const bool fixed_order = config_.parallel.deterministic_reduce;
  const bool plain = !sharding.compression && !sharding.reduce_dtype && sharding.gradient_predivide_factor == 1 &&
                     (fixed_order || !sharding.shared_beyond.ranks);
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
  passes_->executor->rehearse(schedule_of(batches.size()));
  passes_->batches.clear();
  model_.take_prediction_losses();
  if (tied_) tied_->forget();
}

std::vector<double> RunPipeline::train(const std::vector<data::Batch>& batches, double scale) {
  prepare(batches, scale);
  const std::vector<double> losses = losses_of(schedule_of(batches.size()));
  if (tied_) tied_->end_batch();
  measured_ = passes_->executor->measured();
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
  passes_->narrow.reset();  // the caller's, if any
  passes_->parts_of_rows = 1;
  passes_->cache = &cache;
  const std::vector<at::Tensor> own = run(schedule::forward_only(plan_.schedule, 1));
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

std::vector<at::Tensor> RunPipeline::run(const schedule::Schedule& schedule) {
  if (!gathers_) return passes_->executor->run(schedule);
  try {
    return passes_->executor->run(schedule::with_sharding(schedule, schedule::Gathering::per_batch, /*reduce=*/false));
  } catch (...) {
    gathers_->drop();
    throw;
  }
}

/// Everyone learns the losses from the rank of the last stage.
std::vector<double> RunPipeline::losses_of(const schedule::Schedule& schedule) {
  const std::vector<at::Tensor> own = run(schedule);
  const int last = plan_.schedule.rank_of.back();
  std::vector<double> losses(passes_->batches.size());
  if (groups_.pipeline.rank() == last)
    std::transform(own.begin(), own.end(), losses.begin(), [](const at::Tensor& loss) { return loss.item<double>(); });
  passes_->batches.clear();
  const comm::Tag tag("losses");
  at::Tensor shared = at::tensor(losses, at::kDouble).to(groups_.pipeline.device());  // [micro-batches]
  groups_.pipeline.broadcast(shared, last).wait();
  shared = shared.cpu();
  std::copy_n(shared.const_data_ptr<double>(), losses.size(), losses.begin());
  return losses;
}

namespace {

std::string to_text(const std::vector<schedule::TimedAction>& actions) {
  std::string text;
  for (const auto& [action, start, end] : actions)
    if (schedule::is_compute(action.kind))
      text +=
          concat(static_cast<int>(action.kind), " ", action.stage, " ", action.micro_batch, " ", start, " ", end, "\n");
  return text;
}

std::vector<schedule::TimedAction> from_text(const std::string& text) {
  std::vector<schedule::TimedAction> actions;
  std::istringstream in(text);
  int kind = 0;
  for (schedule::TimedAction timed;
       in >> kind >> timed.action.stage >> timed.action.micro_batch >> timed.start >> timed.end;) {
    timed.action.kind = static_cast<schedule::Kind>(kind);
    actions.push_back(timed);
  }
  return actions;
}

/// Means of what was measured. Where backward was one, its two parts are not known by themselves.
schedule::Costs costs_of(const std::vector<std::vector<schedule::TimedAction>>& ranks, int stages) {
  std::vector<std::map<schedule::Kind, std::pair<double, int>>> sums(static_cast<std::size_t>(stages));
  for (const auto& actions : ranks)
    for (const auto& [action, start, end] : actions) {
      auto& [seconds, count] = sums[static_cast<std::size_t>(action.stage)][action.kind];
      seconds += end - start;
      ++count;
    }
  schedule::Costs costs;
  costs.stages.clear();
  for (auto& of_stage : sums) {
    const auto mean = [&](schedule::Kind kind) {
      const auto& [seconds, count] = of_stage[kind];
      return count == 0 ? 0 : seconds / count;
    };
    schedule::StageCosts& stage = costs.stages.emplace_back();
    stage.forward = mean(schedule::Kind::forward);
    stage.input_gradient = mean(schedule::Kind::input_gradient);
    stage.weight_gradient = mean(schedule::Kind::weight_gradient);
    stage.backward = mean(schedule::Kind::backward);
  }
  return costs;
}

}  // namespace

std::string RunPipeline::drawing() {
  schedule::Track measured{.title = "measured", .ranks = {}};
  for (const std::string& text : comm::all_gather_text(groups_.pipeline, to_text(measured_)))
    measured.ranks.push_back(from_text(text));
  if (measured_.empty()) return "";
  const schedule::Schedule& last = schedule_of(static_cast<std::size_t>(measured_micro_batches_));
  const schedule::Timing planned = schedule::time_schedule(last, costs_of(measured.ranks, last.stages()));
  return schedule::draw_svg(last, {schedule::track_of(planned, "planned"), measured});
}

std::string RunPipeline::first_not_finite(const comm::Group& group) const {
  // Forward passes come first, from stage to stage, then backward passes the other way.
  const auto place = [](const schedule::Action& action) {
    const bool forward = action.kind == schedule::Kind::forward;
    return std::tuple(!forward, forward ? action.stage : -action.stage, action.micro_batch);
  };
  std::vector<schedule::TimedAction> mine;
  for (const schedule::Action& action : passes_->executor->not_finite()) mine.push_back({action, 0, 0});
  std::optional<schedule::Action> first;
  int rank = 0;
  for (const std::string& theirs : comm::all_gather_text(group, concat(world().rank(), "\n", to_text(mine)))) {
    const std::size_t line = theirs.find('\n');
    for (const schedule::TimedAction& timed : from_text(theirs.substr(line + 1))) {
      if (first && place(*first) <= place(timed.action)) continue;
      first = timed.action;
      rank = std::stoi(theirs.substr(0, line));
    }
  }
  return first ? concat("first in stage ", first->stage, ", micro-batch ", first->micro_batch, " (",
                        schedule::text_of(*first), "), on rank ", rank)
               : "";
}

void RunPipeline::add_tied_gradients(Sharded& sharded) {
  if (tied_) tied_->add_to(sharded, model_.tied_parameter());
  parallel::add_tied_gradients(sharded, model_.tied_parameter(), groups_.pipeline, plan_.schedule.rank_of.front(),
                               plan_.schedule.rank_of.back());
}

}  // namespace tessera::train
