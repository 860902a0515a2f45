#include <tessera/layout/schedule/schedule.h>

#include <algorithm>

#include <tessera/base/error.h>

namespace tessera::layout::schedule {

const WordTable& words_of(Kind) {
  static const WordTable words = {
      {"f", "i", "w", "b", "send_f", "recv_f", "send_b", "recv_b", "gather", "reshard", "reduce"},
      {{"unshard", "gather"}, {"reduce_grad", "reduce"}}};
  return words;
}

bool is_compute(Kind kind) { return kind <= Kind::backward; }
bool is_message(Kind kind) { return kind >= Kind::send_forward && kind <= Kind::receive_backward; }
bool is_send(Kind kind) { return kind == Kind::send_forward || kind == Kind::send_backward; }
bool has_micro_batch(Kind kind) { return is_compute(kind) || is_message(kind); }

std::string text_of(const Action& action) {
  std::string text = std::to_string(action.stage);
  for (const char c : word_of(action.kind)) text += c == '_' ? c : static_cast<char>(c - 'a' + 'A');
  if (action.micro_batch >= 0) text += std::to_string(action.micro_batch);
  return text;
}

std::vector<int> stages_of(const Schedule& schedule, int rank) {
  std::vector<int> stages;
  for (int stage = 0; stage < schedule.stages(); ++stage)
    if (schedule.rank_of[static_cast<std::size_t>(stage)] == rank) stages.push_back(stage);
  return stages;
}

std::int64_t count_actions(const Schedule& schedule) {
  std::int64_t count = 0;
  for (const auto& actions : schedule.ranks) count += static_cast<std::int64_t>(actions.size());
  return count;
}

namespace {

template <class Predicate>
bool any_action(const Schedule& schedule, Predicate predicate) {
  return std::any_of(schedule.ranks.begin(), schedule.ranks.end(), [&](const auto& actions) {
    return std::any_of(actions.begin(), actions.end(), [&](const Action& action) { return predicate(action.kind); });
  });
}

template <class Predicate>
Schedule with_only(const Schedule& schedule, Predicate predicate) {
  Schedule kept = schedule;
  for (auto& actions : kept.ranks) {
    std::vector<Action> some;
    for (std::size_t i = 0; i < actions.size(); ++i) {
      if (!predicate(actions[i].kind)) continue;
      some.push_back(actions[i]);
      // An action without its other half is not a pair.
      if (some.back().with_next && (i + 1 == actions.size() || !predicate(actions[i + 1].kind)))
        some.back().with_next = false;
    }
    actions = std::move(some);
  }
  return kept;
}

}  // namespace

bool has_messages(const Schedule& schedule) { return any_action(schedule, is_message); }

bool has_backward(const Schedule& schedule) {
  return any_action(schedule, [](Kind kind) { return is_compute(kind) && kind != Kind::forward; });
}

std::vector<int> place_stages(Placement placement, int ranks, int stages_per_rank) {
  if (ranks < 1 || stages_per_rank < 1)
    throw InputError(
        concat("a pipeline of ", ranks, " ranks with ", stages_per_rank, " stages each: both must be at least 1"));
  std::vector<int> rank_of;
  for (int chunk = 0; chunk < stages_per_rank; ++chunk)
    for (int i = 0; i < ranks; ++i) rank_of.push_back(placement == Placement::v && chunk % 2 == 1 ? ranks - 1 - i : i);
  return rank_of;
}

Schedule forward_only(const Schedule& schedule) {
  return with_only(schedule, [](Kind kind) { return kind == Kind::forward; });
}

Schedule forward_only(const Schedule& schedule, int micro_batches) {
  Schedule forwards{.name = "forward", .micro_batches = micro_batches, .rank_of = schedule.rank_of, .ranks = {}};
  for (int rank = 0; rank < static_cast<int>(schedule.ranks.size()); ++rank) {
    auto& actions = forwards.ranks.emplace_back();
    for (const int stage : stages_of(schedule, rank))
      for (int batch = 0; batch < micro_batches; ++batch)
        actions.push_back({.kind = Kind::forward, .stage = stage, .micro_batch = batch});
  }
  return forwards;
}

Schedule computations_of(const Schedule& schedule) { return with_only(schedule, is_compute); }

}  // namespace tessera::layout::schedule
