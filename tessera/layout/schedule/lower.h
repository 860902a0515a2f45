#pragma once
/// \file
/// From computations to everything that a rank does: messages between stages on different ranks, and for stages with
/// sharded parameters or gradients their gathers and reductions.

#include <tessera/layout/schedule/schedule.h>

namespace tessera::layout::schedule {

/// Sends and receives for a schedule of computations (those it has are replaced). A send follows its computation. A
/// receive stands as late as its channel allows: before the first computation that needs its message or one sent after
/// it by the same rank, since messages from one rank to another arrive in the order in which they were sent. Stages on
/// the same rank hand tensors over without a message.
///
/// The schedule may still deadlock, but it must pass the other rules of find_problem() (check.h), which itself calls
/// this for a schedule of computations. What would lead out of its tables, a stage, micro-batch or rank that is not
/// there or a computation that is missing, throws Error.
Schedule with_messages(const Schedule& schedule);

/// When the sharded parameters of a stage are whole.
enum class Gathering : unsigned char {
  none,             ///< always (DDP, ZeRO-1, ZeRO-2): no actions
  per_batch,        ///< from before the stage's first action to after its last I or B: one gather, whole all that time
  per_micro_batch,  ///< during every F, I and B (W needs no parameters): 2 m gathers, whole only then
};
/// The words: none, per_batch, per_micro_batch.
const WordTable& words_of(Gathering);

/// Gathers and reshards as `gathering` says, and, with `reduce`, one reduction per stage and batch, after the last W or
/// B of the stage. Those that the schedule has are replaced; messages stay.
Schedule with_sharding(const Schedule& schedule, Gathering gathering, bool reduce);

}  // namespace tessera::layout::schedule
