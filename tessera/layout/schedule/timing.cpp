#include <tessera/layout/schedule/timing.h>

#include <algorithm>
#include <cmath>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/walk.h>

namespace tessera::layout::schedule {
namespace {

void check_costs(const Schedule& schedule, const Costs& costs) {
  if (costs.stages.size() != 1 && costs.stages.size() != schedule.rank_of.size())
    throw InputError(concat("costs of ", costs.stages.size(), " stages for a schedule of ", schedule.stages(),
                            ": one for all, or one per stage"));
  const auto check_cost = [](double value, const char* what) {
    if (!std::isfinite(value) || value < 0)
      throw InputError(concat("costs: ", what, " is ", value, "; it must be a finite number of at least 0"));
  };
  for (const StageCosts& stage : costs.stages) {
    check_cost(stage.forward, "forward");
    check_cost(stage.input_gradient, "input_gradient");
    check_cost(stage.weight_gradient, "weight_gradient");
    check_cost(stage.whole_backward(), "backward");
    check_cost(stage.gather, "gather");
    check_cost(stage.reduce, "reduce");
    check_cost(stage.output_bytes, "output_bytes");
    check_cost(stage.activation_bytes, "activation_bytes");
    check_cost(stage.weight_gradient_bytes, "weight_gradient_bytes");
    check_cost(stage.parameter_bytes, "parameter_bytes");
  }
  check_cost(costs.latency, "latency");
  check_cost(costs.seconds_per_byte, "seconds_per_byte");
  check_cost(costs.overlap, "overlap");
  if (costs.overlap > 1) throw InputError(concat("costs: overlap is ", costs.overlap, "; at most 1, all of it"));
}

}  // namespace

double HeldBytes::during(const Action& action) {
  const StageCosts& stage = costs_.of(action.stage);
  const double before = bytes_;
  switch (action.kind) {
    case Kind::forward:
      bytes_ += stage.activation_bytes;
      if (backward_) break;
      bytes_ = before;
      return before + stage.activation_bytes;
    case Kind::input_gradient:
      bytes_ += stage.weight_gradient_bytes - stage.activation_bytes;  // activations are replaced gradually, layer by
                                                                       // layer
      break;
    case Kind::backward:
      bytes_ -= stage.activation_bytes;
      break;
    case Kind::weight_gradient:
      bytes_ -= stage.weight_gradient_bytes;
      break;
    case Kind::gather:
      bytes_ += stage.parameter_bytes;
      break;
    case Kind::reshard:
      bytes_ -= stage.parameter_bytes;
      break;
    default:
      break;
  }
  return std::max(before, bytes_);
}

double Timing::bubble() const {
  double busy = 0;
  for (const RankTiming& rank : ranks) busy = std::max(busy, rank.busy);
  return total - busy;
}

double Timing::inner_bubble() const {
  double idle = 0;
  for (const RankTiming& rank : ranks) idle = std::max(idle, rank.idle_inside());
  return idle;
}

Timing time_schedule(const Schedule& schedule, const Costs& costs) {
  check_costs(schedule, costs);
  check(schedule, {.outstanding = costs.outstanding});
  const bool lowered = has_messages(schedule), backward = has_backward(schedule);
  Walked walked = lowered ? walk(schedule, costs) : walk(with_messages(schedule), costs);
  TESSERA_CHECK(walked.stopped.empty(), "a checked schedule stopped");
  Timing timing;
  for (auto& actions : walked.ranks) {
    RankTiming rank;
    bool any = false;
    for (const TimedAction& timed : actions) {
      timing.total = std::max(timing.total, timed.end);
      if (!is_compute(timed.action.kind)) continue;
      if (!any) rank.first = timed.start;
      any = true;
      rank.last = timed.end;
      rank.busy += timed.end - timed.start;
    }
    HeldBytes held(costs, backward);
    for (const TimedAction& timed : actions) rank.peak_bytes = std::max(rank.peak_bytes, held.during(timed.action));
    rank.actions = std::move(actions);
    timing.ranks.push_back(std::move(rank));
  }
  return timing;
}

}  // namespace tessera::layout::schedule
