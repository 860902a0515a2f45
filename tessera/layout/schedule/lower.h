#pragma once
/// \file
/// Completes a schedule of computations: adds messages between stages on different ranks, and gathers and reductions
/// for stages with sharded parameters or gradients.

#include <tessera/layout/schedule/schedule.h>

namespace tessera::layout::schedule {

/// Adds sends and receives to a schedule of computations (replacing existing ones). A send follows its computation. A
/// receive is placed as late as its channel allows: before the first computation that needs its message or a later one
/// from the same rank, since messages between two ranks arrive in sending order. Stages on the same rank pass tensors
/// without a message.
///
/// The schedule may still deadlock, but it must satisfy the other rules of find_problem() (check.h), which itself calls
/// this function for a schedule of computations. An out-of-range stage, micro-batch or rank, or a missing computation,
/// throws Error.
Schedule with_messages(const Schedule& schedule);

/// When the sharded parameters of a stage are kept whole.
enum class Gathering : unsigned char {
  none,             ///< always (DDP, ZeRO-1, ZeRO-2): no actions
  per_batch,        ///< from before the stage's first action until after its last I or B: one gather
  per_micro_batch,  ///< during every F, I and B (W needs no parameters): 2 m gathers
};
/// Parses none, per_batch, per_micro_batch.
const WordTable& words_of(Gathering);

/// Adds gathers and reshards according to `gathering`, and, with `reduce`, one reduction per stage and batch, after the
/// last W or B of the stage. Replaces existing ones; messages are kept.
Schedule with_sharding(const Schedule& schedule, Gathering gathering, bool reduce);

}  // namespace tessera::layout::schedule
