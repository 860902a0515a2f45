#include <tessera/parallel/pipeline/stage_runner.h>

#include <ATen/ATen.h>

#include <algorithm>
#include <sstream>
#include <tuple>
#include <utility>

#include <tessera/base/text.h>
#include <tessera/comm/recorder.h>
#include <tessera/comm/run_on_all_ranks.h>
#include <tessera/comm/world.h>
#include <tessera/layout/schedule/draw.h>
#include <tessera/layout/schedule/lower.h>

namespace tessera::parallel {
namespace schedule = layout::schedule;

StageRunner::StageRunner(PipelineOptions options, int last_rank)
    : group_(options.group), last_rank_(last_rank), executor_([&] {
        options.sharding = [this](const schedule::Action& action) {
          if (gathers_) gathers_->act(action);
        };
        return std::move(options);
      }()) {}

void StageRunner::gather_per_batch(Sharded& sharded, std::map<int, std::vector<std::string>> parameters) {
  gathers_.emplace(sharded, std::move(parameters));
}

std::vector<at::Tensor> StageRunner::run(const schedule::Schedule& computations) {
  if (!gathers_) return executor_.run(computations);
  try {
    return executor_.run(schedule::with_sharding(computations, schedule::Gathering::per_batch, /*reduce=*/false));
  } catch (...) {
    gathers_->drop();
    throw;
  }
}

std::vector<double> StageRunner::losses_of(const schedule::Schedule& computations) {
  const std::vector<at::Tensor> own = run(computations);
  std::vector<double> losses(static_cast<std::size_t>(computations.micro_batches));
  std::transform(own.begin(), own.end(), losses.begin(), [](const at::Tensor& loss) { return loss.item<double>(); });
  const comm::Tag tag("losses");
  at::Tensor shared = at::tensor(losses, at::kDouble).to(group_.device());  // [micro-batches]
  group_.broadcast(shared, last_rank_).wait();
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

/// Means of the measured times. A backward that was not split has no times for its two parts.
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

std::string StageRunner::first_not_finite(const comm::Group& group) const {
  // Order: forward passes first, from stage to stage, then backward passes in reverse.
  const auto place = [](const schedule::Action& action) {
    const bool forward = action.kind == schedule::Kind::forward;
    return std::tuple(!forward, forward ? action.stage : -action.stage, action.micro_batch);
  };
  std::vector<schedule::TimedAction> mine;
  for (const schedule::Action& action : executor_.not_finite()) mine.push_back({action, 0, 0});
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

std::string draw_measured(const comm::Group& pipeline, const schedule::Schedule& schedule,
                          const std::vector<schedule::TimedAction>& measured) {
  schedule::Track track{.title = "measured", .ranks = {}};
  for (const std::string& text : comm::all_gather_text(pipeline, to_text(measured)))
    track.ranks.push_back(from_text(text));
  if (measured.empty()) return "";
  const schedule::Timing planned = schedule::time_schedule(schedule, costs_of(track.ranks, schedule.stages()));
  return schedule::draw_svg(schedule, {schedule::track_of(planned, "planned"), track});
}

}  // namespace tessera::parallel
