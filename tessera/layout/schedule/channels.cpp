#include <tessera/layout/schedule/channels.h>

namespace tessera::layout::schedule {
namespace {

bool is_elsewhere(const Schedule& schedule, int stage, int other) {
  return other >= 0 && other < schedule.stages() &&
         schedule.rank_of[static_cast<std::size_t>(stage)] != schedule.rank_of[static_cast<std::size_t>(other)];
}

bool has_input_gradient(Kind kind) { return kind == Kind::input_gradient || kind == Kind::backward; }

}  // namespace

std::optional<Action> send_after(const Schedule& schedule, const Action& action) {
  if (action.kind == Kind::forward && is_elsewhere(schedule, action.stage, action.stage + 1))
    return Action{Kind::send_forward, false, action.stage, action.micro_batch};
  if (has_input_gradient(action.kind) && is_elsewhere(schedule, action.stage, action.stage - 1))
    return Action{Kind::send_backward, false, action.stage, action.micro_batch};
  return std::nullopt;
}

std::optional<Action> receive_before(const Schedule& schedule, const Action& action) {
  if (action.kind == Kind::forward && is_elsewhere(schedule, action.stage, action.stage - 1))
    return Action{Kind::receive_forward, false, action.stage, action.micro_batch};
  if (has_input_gradient(action.kind) && is_elsewhere(schedule, action.stage, action.stage + 1))
    return Action{Kind::receive_backward, false, action.stage, action.micro_batch};
  return std::nullopt;
}

Action counterpart(const Action& message) {
  Action other = message;
  switch (message.kind) {
    case Kind::send_forward:
      other.kind = Kind::receive_forward;
      ++other.stage;
      break;
    case Kind::receive_forward:
      other.kind = Kind::send_forward;
      --other.stage;
      break;
    case Kind::send_backward:
      other.kind = Kind::receive_backward;
      --other.stage;
      break;
    default:
      other.kind = Kind::send_backward;
      ++other.stage;
  }
  return other;
}

}  // namespace tessera::layout::schedule
