#include <tessera/parallel/pipeline/stage_plan.h>

#include <tessera/base/error.h>
#include <tessera/base/file.h>
#include <tessera/base/text.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/files.h>
#include <tessera/layout/schedule/table.h>
#include <tessera/layout/stages.h>
#include <tessera/parallel/pipeline/measure_layers.h>

#include <algorithm>

namespace tessera::parallel {
namespace {

namespace schedule = layout::schedule;

schedule::Schedule schedule_for(const PipelineParallelOptions& options, int ranks) {
  if (options.micro_batches < 0 || options.stages_per_rank < 0)
    throw InputError(concat("pipeline: micro_batches = ", options.micro_batches, ", stages_per_rank = ",
                            options.stages_per_rank, "; both must be at least 1, or 0 for the default"));
  if (schedule::find_schedule(options.schedule) != nullptr || !path_exists(options.schedule))
    return schedule::make_schedule(options.schedule,
                                   {.ranks = ranks,
                                    .stages_per_rank = options.stages_per_rank,
                                    .micro_batches = options.micro_batches == 0 ? ranks : options.micro_batches});
  schedule::Schedule read = schedule::read_schedule(options.schedule);
  schedule::check(read);
  const auto given = static_cast<int>(read.ranks.size());
  const auto refuse = [&](const char* what, int in_file, int asked) {
    throw InputError(concat("pipeline: schedule ", options.schedule, " has ", in_file, " ", what,
                            ", but the options specify ", asked, "; make them equal"));
  };
  if (given != ranks)
    throw InputError(concat("pipeline: schedule ", options.schedule, " is for ", given, " ranks, but the group has ",
                            ranks, "; use a file for that many ranks, or the name of a schedule"));
  if (options.micro_batches != 0 && options.micro_batches != read.micro_batches)
    refuse("micro-batches", read.micro_batches, options.micro_batches);
  if (options.stages_per_rank != 0 && options.stages_per_rank * ranks != read.stages())
    refuse("stages", read.stages(), options.stages_per_rank * ranks);
  if (!schedule::has_backward(read))
    throw InputError(concat("pipeline: schedule ", options.schedule,
                            " has forward passes only, so nothing could be trained; use one with backward passes"));
  return schedule::computations_of(read);
}

/// Indices of the first layers of all stages after the first.
std::vector<std::int64_t> firsts_of(const LayerChain& chain, const std::vector<std::string>& names, int stages) {
  std::vector<std::string> known;
  for (const LayerChain::Layer& layer : chain.layers()) known.push_back(layer.name);
  if (names.size() + 1 != static_cast<std::size_t>(stages))
    throw InputError(concat("pipeline: PipelineCut::before() names ", names.size(), " layers, so it makes ",
                            names.size() + 1, " stages, but the schedule has ", stages, ": name ", stages - 1));
  std::vector<std::int64_t> firsts;
  for (const std::string& name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end()) {
      const auto near = nearest(name, known);
      throw InputError(concat("pipeline: PipelineCut::before() names '", name, "', but no layer has that name",
                              near ? concat("; did you mean '", *near, "'?") : concat("; the layers are ", join(known)),
                              chain.remark()));
    }
    firsts.push_back(found - known.begin());
    if (firsts.size() > 1 && firsts.back() < firsts[firsts.size() - 2])
      throw InputError(concat("pipeline: PipelineCut::before() names '", name, "' after '", names[firsts.size() - 2],
                              "', which comes later in the model; name them in the model's order"));
  }
  return firsts;
}

std::vector<double> costs_for(LayerChain& chain, const LayerTensors& tensors, const PipelineParallelOptions& options) {
  const std::size_t layers = chain.layers().size();
  const PipelineCut& cut = options.cut;
  std::vector<double> costs(layers, 1);
  if (cut.kind == PipelineCut::Kind::costs) {
    if (cut.costs_of_layers.size() != layers)
      throw InputError(concat("pipeline: PipelineCut::by_costs() has ", cut.costs_of_layers.size(),
                              " costs, but the model has ", layers, " layers: pass one cost per layer"));
    return cut.costs_of_layers;
  }
  if (cut.kind == PipelineCut::Kind::measured) return measure_layers(chain, tensors, options.group, cut.sample);
  if (cut.kind == PipelineCut::Kind::parameters)
    for (std::size_t i = 0; i < layers; ++i) costs[i] = static_cast<double>(tensors.parameters(i));
  return costs;
}

}  // namespace

std::vector<bool> StagePlan::kept_by(int rank) const {
  std::vector<bool> kept(layers.back().second, false);
  for (const int stage : stages_of(schedule, rank)) {
    const auto [first, past] = layers[static_cast<std::size_t>(stage)];
    std::fill(kept.begin() + static_cast<std::ptrdiff_t>(first), kept.begin() + static_cast<std::ptrdiff_t>(past),
              true);
  }
  return kept;
}

std::vector<std::string> StagePlan::places() const {
  std::vector<std::string> places(layers.back().second);
  for (std::size_t stage = 0; stage < layers.size(); ++stage)
    for (std::size_t i = layers[stage].first; i < layers[stage].second; ++i)
      places[i] = concat("stage ", stage, " on rank ", rows[stage].rank);
  return places;
}

StagePlan plan_stages(LayerChain& chain, const LayerTensors& tensors, const PipelineParallelOptions& options) {
  const int ranks = options.group.size();
  StagePlan plan{.schedule = schedule_for(options, ranks), .layers = {}, .rows = {}};
  const auto layers = static_cast<std::int64_t>(chain.layers().size());
  const int stages = plan.schedule.stages();
  const PipelineCut::Kind kind = options.cut.kind;
  const std::vector<double> costs = costs_for(chain, tensors, options);
  const std::vector<layout::StagePart> parts =
      kind == PipelineCut::Kind::before ? layout::cut_before(firsts_of(chain, options.cut.first_layers, stages), layers)
      : kind == PipelineCut::Kind::layers ? layout::cut_evenly(layers, stages)
                                          : layout::cut_by_cost({costs, 0, 0}, plan.schedule.rank_of);
  std::vector<std::int64_t> of_rank(static_cast<std::size_t>(ranks), 0);
  for (std::size_t stage = 0; stage < parts.size(); ++stage) {
    const auto first = static_cast<std::size_t>(parts[stage].first_block),
               past = static_cast<std::size_t>(parts[stage].past_block());
    plan.layers.emplace_back(first, past);
    PipelineStageRow& row = plan.rows.emplace_back(PipelineStageRow{.rank = plan.schedule.rank_of[stage]});
    for (std::size_t i = first; i < past; ++i) {
      row.layers.push_back(chain.layers()[i].name);
      row.parameters += tensors.parameters(i);
      row.cost += costs[i];
    }
    of_rank[static_cast<std::size_t>(row.rank)] += parts[stage].blocks;
  }
  for (std::size_t rank = 0; rank < of_rank.size(); ++rank)
    if (of_rank[rank] == 0)
      throw InputError(concat("pipeline: rank ", rank, " of ", ranks, " would have no layers: ", layers,
                              " are cut into ", stages,
                              " stages; use fewer ranks or stages, or cut elsewhere "
                              "(PipelineCut::before)",
                              chain.remark()));
  return plan;
}

std::string describe(const StagePlan& plan) {
  std::string text = concat(plan.schedule.name.empty() ? "schedule from a file" : plan.schedule.name, ", ",
                            plan.schedule.micro_batches, " micro-batches");
  for (int rank = 0; rank < static_cast<int>(plan.schedule.ranks.size()); ++rank) {
    std::vector<std::string> own;
    for (const int stage : stages_of(plan.schedule, rank)) {
      const std::vector<std::string>& layers = plan.rows[static_cast<std::size_t>(stage)].layers;
      own.push_back(layers.empty()       ? "nothing"
                    : layers.size() == 1 ? layers.front()
                                         : concat(layers.front(), "-", layers.back()));
    }
    text += concat("; rank ", rank, ": ", join(own, " and "));
  }
  return text;
}

}  // namespace tessera::parallel
