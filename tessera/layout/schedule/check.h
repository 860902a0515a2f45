#pragma once
/// \file
/// Proves a schedule before anything starts: every action once, where its stage is, after what it needs, and no way for
/// ranks to wait for one another in a circle.
///
/// The model of communication:
///  - from each rank to each other there is one channel, first in, first out: the k-th receive of the receiver takes
/// the
///    k-th message of the sender, so both must name the same message;
///  - a send returns at once while fewer than K messages of its channel are sent and not yet received, else it waits
///    until the receiver has taken one (K = 0: no bound);
///  - a receive waits for its message; computations need only what was received or made on the rank before; gathers,
///    reshards and reductions wait for nobody of the pipeline (their partners do the same schedule).
/// In this model a rank never chooses, so whether all reach their end does not depend on who is how fast (Kahn 1974):
/// one run of it decides for all. A larger K never brings a deadlock.

#include <tessera/layout/schedule/schedule.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::layout::schedule {

struct Rules {
  int outstanding = 0;  ///< K of the model
};

/// What is wrong first. Ranks, stages, micro-batches and positions in a rank's list count from 0.
struct Problem {
  int rank = -1;               ///< -1: the schedule as a whole
  std::int64_t position = -1;  ///< the list's length where an action is missing
  std::string action;          ///< "2F3"; "" where there is none
  std::string reason;          ///< the rule and the numbers; for a deadlock, who waits for whom
};
/// "rank 1, position 4 (2F3): stage 2 is on rank 2"
std::string text_of(const Problem& problem);

/// nullopt: the schedule is right. Any schedule may be asked about. One of computations only is judged with messages
/// that are sent and received as with_messages() has it, and positions are those among its own actions. Without any
/// backward it is one for evaluation, else every micro-batch needs its backward in every stage. It is one batch and is
/// repeated, so parameters that are gathered must be sharded again at its end. Cost: linear in the actions.
std::optional<Problem> find_problem(const Schedule& schedule, const Rules& rules = {});
/// Throws InputError with the problem, if there is one.
void check(const Schedule& schedule, const Rules& rules = {});

/// The least K >= 1 with which a right schedule has no deadlock. Throws InputError when none is enough.
int least_outstanding(const Schedule& schedule);

/// What a right schedule holds at most at one time. In flight is a micro-batch whose F has begun and whose last part of
/// backward (B or W) has not ended: its activations are kept. These numbers depend on the order of actions only.
struct InFlight {
  std::vector<int> of_stage;              ///< micro-batches, per stage
  std::vector<int> of_rank;               ///< all stages of a rank together, at the same time
  std::vector<int> of_rank_before_input;  ///< only those whose I or B has not ended
};
InFlight count_in_flight(const Schedule& schedule);

}  // namespace tessera::layout::schedule
