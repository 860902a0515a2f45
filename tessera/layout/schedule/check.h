#pragma once
/// \file
/// Checks a schedule before it runs: every action occurs once, on its stage's rank, after its inputs, and ranks cannot
/// deadlock.
///
/// The model of communication:
/// - There is one FIFO channel from each rank to each other rank: the k-th receive of the receiver takes the k-th
///   message of the sender, so both must name the same message.
/// - A send returns at once while fewer than K messages of its channel are sent and not yet received; otherwise it
///   waits until the receiver has taken one (K = 0: no bound).
/// - A receive waits for its message. Computations need only messages received or results computed on the rank before.
///   Gathers, reshards and reductions do not wait for other pipeline ranks (their partners run the same schedule).
/// In this model a rank never chooses, so whether all ranks finish does not depend on their speeds (Kahn 1974), and one
/// simulation decides for all. A larger K never causes a deadlock.

#include <tessera/layout/schedule/schedule.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::layout::schedule {

struct Rules {
  int outstanding = 0;  ///< K of the model
};

/// The first problem found. Ranks, stages, micro-batches and positions in a rank's list count from 0.
struct Problem {
  int rank = -1;               ///< -1: the schedule as a whole
  std::int64_t position = -1;  ///< the list's length if an action is missing
  std::string action;          ///< "2F3"; may be ""
  std::string reason;          ///< the rule and the numbers; for a deadlock, which rank waits for which
};
/// "rank 1, position 4 (2F3): stage 2 is on rank 2"
std::string text_of(const Problem& problem);

/// nullopt: the schedule is valid. Accepts any schedule. A schedule of computations only is checked with the messages
/// that with_messages() adds, and positions refer to its own actions. A schedule without any backward is for
/// evaluation; otherwise every micro-batch needs its backward in every stage. A schedule is one batch and is repeated,
/// so gathered parameters must be resharded by its end. Cost: linear in the actions.
std::optional<Problem> find_problem(const Schedule& schedule, const Rules& rules = {});
/// Throws InputError with the problem, if any.
void check(const Schedule& schedule, const Rules& rules = {});

/// The smallest K >= 1 with which a valid schedule does not deadlock. Throws InputError if none exists.
int least_outstanding(const Schedule& schedule);

/// Peak numbers of micro-batches in flight in a valid schedule. A micro-batch is in flight from the start of its F to
/// the end of the last part of its backward (B or W); its activations are kept during that time. The numbers depend
/// only on the order of actions.
struct InFlight {
  std::vector<int> of_stage;              ///< micro-batches, per stage
  std::vector<int> of_rank;               ///< over all stages of a rank, at the same time
  std::vector<int> of_rank_before_input;  ///< only micro-batches whose I or B has not ended
};
InFlight count_in_flight(const Schedule& schedule);

}  // namespace tessera::layout::schedule
