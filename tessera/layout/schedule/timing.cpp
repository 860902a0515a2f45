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

/// Bytes that a rank holds while and after each of its actions, at most. Without backward nobody needs a forward's
/// activations once it is done.
double peak_bytes_of(const std::vector<TimedAction>& actions, const Costs& costs, bool backward) {
  double bytes = 0, peak = 0;
  for (const TimedAction& timed : actions) {
    const StageCosts& stage = costs.of(timed.action.stage);
    switch (timed.action.kind) {
      case Kind::forward:
        bytes += stage.activation_bytes;
        peak = std::max(peak, bytes);
        if (!backward) bytes -= stage.activation_bytes;
        break;
      case Kind::input_gradient:
        bytes += stage.weight_gradient_bytes - stage.activation_bytes;  // layer by layer the one becomes the other
        break;
      case Kind::backward:
        bytes -= stage.activation_bytes;
        break;
      case Kind::weight_gradient:
        bytes -= stage.weight_gradient_bytes;
        break;
      case Kind::gather:
        bytes += stage.parameter_bytes;
        break;
      case Kind::reshard:
        bytes -= stage.parameter_bytes;
        break;
      default:
        break;
    }
    peak = std::max(peak, bytes);
  }
  return peak;
}

}  // namespace

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
    rank.peak_bytes = peak_bytes_of(actions, costs, backward);
    rank.actions = std::move(actions);
    timing.ranks.push_back(std::move(rank));
  }
  return timing;
}

}  // namespace tessera::layout::schedule
