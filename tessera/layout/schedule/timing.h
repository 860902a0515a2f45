#pragma once
/// \file
/// When every action of a schedule begins and ends, given what each costs: used by the planner, drawings and tests.
///
/// A rank does its computations one after another. Messages follow the model of check.h; one takes latency +
/// bytes / bandwidth, and messages of one channel follow each other. Gathers and reductions of a rank run beside its
/// computations, one after another; a computation waits until the gather of its stage is done.

#include <tessera/layout/schedule/schedule.h>

#include <vector>

namespace tessera::layout::schedule {

/// Seconds (or any unit of time) and bytes of one stage, per micro-batch.
struct StageCosts {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  ///< F, I, W
  double backward = -1;                                         ///< B; below 0: input_gradient + weight_gradient
  double gather = 0, reduce = 0;                                ///< per GATHER, per REDUCE
  double output_bytes = 0;           ///< the message to the next stage, and its gradient's back
  double activation_bytes = 0;       ///< kept from F to the end of B or I; without backward, during F
  double weight_gradient_bytes = 0;  ///< kept from the end of I to that of W
  double parameter_bytes = 0;        ///< that a GATHER adds and a RESHARD drops

  /// What B takes.
  double whole_backward() const { return backward < 0 ? input_gradient + weight_gradient : backward; }
};

/// What actions and messages take.
struct Costs {
  std::vector<StageCosts> stages = std::vector<StageCosts>(1);  ///< one per stage, or one for all
  double latency = 0;                                           ///< per message
  double seconds_per_byte = 0;                                  ///< 1 / bandwidth
  int outstanding = 0;                                          ///< K of check.h
  /// What of an overlapped pair's shorter half is hidden behind the longer: 0 nothing (F + B), 1 all of it (max(F, B)).
  double overlap = 0;

  /// Those of one stage.
  const StageCosts& of(int stage) const {
    return stages.size() == 1 ? stages.front() : stages[static_cast<std::size_t>(stage)];
  }
};

/// What a stage of a rank holds, action by action: what F keeps, what W needs, gathered parameters.
class HeldBytes {
 public:
  /// `backward`: the schedule has backwards. Without them nobody needs a forward's activations once it is done.
  HeldBytes(const Costs& costs, bool backward) : costs_(costs), backward_(backward) {}
  /// Takes the next action; gives the bytes held during it, at most.
  double during(const Action& action);
  /// Bytes held after the last action.
  double now() const { return bytes_; }

 private:
  const Costs& costs_;
  bool backward_;
  double bytes_ = 0;
};

/// An action with its begin and end.
struct TimedAction {
  Action action;              ///< as the schedule has it
  double start = 0, end = 0;  ///< from the beginning of the step
};

/// One rank's step. Its time is busy + idle inside + what it waits before its first and after its last computation.
struct RankTiming {
  std::vector<TimedAction> actions;  ///< as in the schedule (with the messages that were added)
  double first = 0, last = 0;        ///< begin of its first computation, end of its last
  double busy = 0;                   ///< computing
  double peak_bytes = 0;             ///< activations, what W needs, and gathered parameters
  double idle_inside() const { return last - first - busy; }  ///< between its first and last computation
};

/// A schedule as it would run with given costs.
struct Timing {
  double total = 0;               ///< from 0 to the last end, reductions included
  std::vector<RankTiming> ranks;  ///< one for each, in order

  /// total - what the busiest rank computes: what a step takes longer than with a pipeline that is always full.
  double bubble() const;
  /// The most that a rank idles between its first and last computation: the bubble of Qi et al. 2023, who let ranks
  /// begin and end their steps at different times.
  double inner_bubble() const;
};

/// Checks the schedule first (check.h) and adds messages where it has none. Throws InputError when it is wrong,
/// deadlocks with costs.outstanding, or when the costs are no finite numbers >= 0 or not one per stage.
Timing time_schedule(const Schedule& schedule, const Costs& costs = {});

}  // namespace tessera::layout::schedule
