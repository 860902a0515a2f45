#pragma once
/// \file
/// Computes the start and end of every action of a schedule from given costs, for the planner, drawings and tests.
///
/// A rank runs its computations one after another. Messages follow the model of check.h; a message takes latency +
/// bytes / bandwidth, and messages of one channel are sent one after another. Gathers and reductions of a rank run
/// concurrently with its computations, one at a time; a computation waits for the gather of its stage.

#include <tessera/layout/schedule/schedule.h>

#include <vector>

namespace tessera::layout::schedule {

/// Costs of one stage, per micro-batch: seconds (or any unit of time) and bytes.
struct StageCosts {
  double forward = 1, input_gradient = 1, weight_gradient = 1;  ///< F, I, W
  double backward = -1;                                         ///< B; negative: input_gradient + weight_gradient
  double gather = 0, reduce = 0;                                ///< per GATHER, per REDUCE
  double output_bytes = 0;           ///< size of the message to the next stage, and of its gradient back
  double activation_bytes = 0;       ///< kept from F to the end of B or I; without backward, during F
  double weight_gradient_bytes = 0;  ///< kept from the end of I to the end of W
  double parameter_bytes = 0;        ///< added by GATHER, dropped by RESHARD

  /// Time of B.
  double whole_backward() const { return backward < 0 ? input_gradient + weight_gradient : backward; }
};

/// Costs of actions and messages.
struct Costs {
  std::vector<StageCosts> stages = std::vector<StageCosts>(1);  ///< one per stage, or one for all
  double latency = 0;                                           ///< per message
  double seconds_per_byte = 0;                                  ///< 1 / bandwidth
  int outstanding = 0;                                          ///< K of check.h
  /// Fraction of an overlapped pair's shorter half that is hidden: 0: none (F + B); 1: all (max(F, B)).
  double overlap = 0;

  /// Costs of one stage.
  const StageCosts& of(int stage) const {
    return stages.size() == 1 ? stages.front() : stages[static_cast<std::size_t>(stage)];
  }
};

/// Bytes that a rank holds, action by action: F's activations, W's inputs, gathered parameters.
class HeldBytes {
 public:
  /// `backward`: the schedule has backwards. Otherwise activations are dropped at the end of each forward.
  HeldBytes(const Costs& costs, bool backward) : costs_(costs), backward_(backward) {}
  /// Processes the next action; returns the peak bytes during it.
  double during(const Action& action);
  /// Bytes held after the last action.
  double now() const { return bytes_; }

 private:
  const Costs& costs_;
  bool backward_;
  double bytes_ = 0;
};

/// An action with its start and end.
struct TimedAction {
  Action action;              ///< as in the schedule
  double start = 0, end = 0;  ///< since the start of the step
};

/// One rank's step. Its time is the busy time, the idle time inside, and the waiting time before the first and after
/// the last computation.
struct RankTiming {
  std::vector<TimedAction> actions;                           ///< as in the schedule (with added messages)
  double first = 0, last = 0;                                 ///< start of its first computation, end of its last
  double busy = 0;                                            ///< computing
  double peak_bytes = 0;                                      ///< activations, W's inputs, and gathered parameters
  double idle_inside() const { return last - first - busy; }  ///< between its first and last computation
};

/// The simulated execution of a schedule with given costs.
struct Timing {
  double total = 0;               ///< from 0 to the end of the last action, reductions included
  std::vector<RankTiming> ranks;  ///< one per rank, in order

  /// total minus the busiest rank's computing time: the excess over a pipeline that is always full.
  double bubble() const;
  /// The longest idle time of a rank between its first and last computation: the bubble of Qi et al. 2023, where ranks
  /// may start and end their steps at different times.
  double inner_bubble() const;
};

/// Checks the schedule first (check.h) and adds messages if it has none. Throws InputError if it is invalid, deadlocks
/// with costs.outstanding, or the costs are not finite numbers >= 0 or not one per stage.
Timing time_schedule(const Schedule& schedule, const Costs& costs = {});

}  // namespace tessera::layout::schedule
