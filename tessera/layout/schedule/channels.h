#pragma once
/// \file
/// The messages that a schedule needs, with sender and receiver.

#include <tessera/layout/schedule/schedule.h>

#include <optional>

namespace tessera::layout::schedule {

inline int rank_of(const Schedule& schedule, const Action& action) {
  return schedule.rank_of[static_cast<std::size_t>(action.stage)];
}

/// The send that must follow a computation because the stage that uses its result is on another rank; otherwise
/// nullopt.
std::optional<Action> send_after(const Schedule& schedule, const Action& action);
/// The receive that must precede a computation because its input is computed on another rank; otherwise nullopt.
std::optional<Action> receive_before(const Schedule& schedule, const Action& action);
/// The other end of a message: SEND_F of stage s is RECV_F of stage s + 1, SEND_B of s is RECV_B of s - 1; and
/// vice versa.
Action counterpart(const Action& message);

}  // namespace tessera::layout::schedule
