#include <tessera/layout/schedule/check.h>

#include <algorithm>
#include <array>
#include <map>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/channels.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/walk.h>

namespace tessera::layout::schedule {
namespace {

constexpr std::int32_t nowhere = -1;
constexpr std::size_t kinds_with_micro_batch = 8;  ///< F to RECV_B

std::string name_of(Kind kind) { return text_of(Action{kind, false, 0, -1}).substr(1); }

bool is_input_gradient(Kind kind) { return kind == Kind::input_gradient || kind == Kind::backward; }

/// Finds the first problem, rule by rule; each rule may rely on the earlier ones.
class Checker {
 public:
  Checker(const Schedule& schedule, const Rules& rules) : schedule_(schedule), rules_(rules) {}

  std::optional<Problem> run() {
    for (const auto rule :
         {&Checker::sizes, &Checker::actions, &Checker::enough_forwards, &Checker::once, &Checker::complete,
          &Checker::order, &Checker::sharding, &Checker::channels, &Checker::circles})
      if (auto problem = (this->*rule)()) return problem;
    return std::nullopt;
  }

 private:
  using Found = std::optional<Problem>;

  template <class... Parts>
  Problem problem(std::size_t rank, std::size_t position, const Parts&... reason) const {
    const auto& actions = schedule_.ranks[rank];
    return {static_cast<int>(rank), static_cast<std::int64_t>(position),
            position < actions.size() ? text_of(actions[position]) : "", concat(reason...)};
  }

  template <class... Parts>
  Problem missing(const Action& action, const Parts&... reason) const {
    const auto rank = static_cast<std::size_t>(rank_of(schedule_, action));
    return {static_cast<int>(rank), static_cast<std::int64_t>(schedule_.ranks[rank].size()), text_of(action),
            concat("is missing", reason...)};
  }

  /// Calls visit(rank, position, action) until it finds something.
  template <class Visit>
  Found first(Visit visit) const {
    for (std::size_t rank = 0; rank < schedule_.ranks.size(); ++rank)
      for (std::size_t i = 0; i < schedule_.ranks[rank].size(); ++i)
        if (auto found = visit(rank, i, schedule_.ranks[rank][i])) return found;
    return std::nullopt;
  }

  Found sizes() {
    const auto whole = [](const std::string& reason) { return Problem{-1, -1, "", reason}; };
    if (schedule_.rank_of.empty()) return whole("it has no stages");
    if (schedule_.micro_batches < 1)
      return whole(concat(schedule_.micro_batches, " micro-batches; there must be at least one"));
    const auto ranks = schedule_.ranks.size();
    std::vector<bool> has_stage(ranks, false);
    for (std::size_t stage = 0; stage < schedule_.rank_of.size(); ++stage) {
      const int rank = schedule_.rank_of[stage];
      if (rank < 0 || static_cast<std::size_t>(rank) >= ranks)
        return whole(concat("stage ", stage, " is on rank ", rank, ", but there are ", ranks, " ranks"));
      has_stage[static_cast<std::size_t>(rank)] = true;
    }
    const auto idle = std::find(has_stage.begin(), has_stage.end(), false);
    if (idle != has_stage.end())
      return whole(concat("rank ", idle - has_stage.begin(), " has no stage: use fewer ranks or more stages"));
    return std::nullopt;
  }

  Found actions() {
    backward_ = has_backward(schedule_);
    messages_ = has_messages(schedule_);
    return first([&](std::size_t rank, std::size_t i, const Action& action) -> Found {
      const int stages = schedule_.stages(), micro_batches = schedule_.micro_batches;
      if (action.kind > Kind::reduce)
        return Problem{static_cast<int>(rank), static_cast<std::int64_t>(i), "", "no action"};
      if (action.stage < 0 || action.stage >= stages)
        return problem(rank, i, "no stage ", action.stage, "; the stages are 0 to ", stages - 1);
      if (rank_of(schedule_, action) != static_cast<int>(rank))
        return problem(rank, i, "stage ", action.stage, " is on rank ", rank_of(schedule_, action));
      if (!has_micro_batch(action.kind)) {
        if (action.micro_batch != -1)
          return problem(rank, i, name_of(action.kind), " is for a stage, not for micro-batch ", action.micro_batch);
      } else if (action.micro_batch < 0 || action.micro_batch >= micro_batches) {
        return problem(rank, i, "unknown micro-batch ", action.micro_batch, "; they are 0 to ", micro_batches - 1);
      }
      if (!action.with_next) return std::nullopt;
      const auto& list = schedule_.ranks[rank];
      const bool pairs = i + 1 < list.size() && !list[i + 1].with_next && is_compute(action.kind) &&
                         is_compute(list[i + 1].kind) &&
                         (action.kind == Kind::forward) + (list[i + 1].kind == Kind::forward) == 1 &&
                         is_input_gradient(action.kind) + is_input_gradient(list[i + 1].kind) == 1;
      if (!pairs) return problem(rank, i, "an overlapped pair must be two actions, an F and a B or I");
      return std::nullopt;
    });
  }

  /// Ensures that no table is larger in (stage, micro-batch) than the number of forwards.
  Found enough_forwards() {
    std::vector<std::int64_t> seen;
    first([&](std::size_t, std::size_t, const Action& action) -> Found {
      if (action.kind == Kind::forward) seen.push_back(number(action));
      return std::nullopt;
    });
    const std::int64_t all = std::int64_t{schedule_.stages()} * schedule_.micro_batches;
    if (static_cast<std::int64_t>(seen.size()) >= all) return std::nullopt;
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    std::int64_t gap = 0;
    while (gap < static_cast<std::int64_t>(seen.size()) && seen[static_cast<std::size_t>(gap)] == gap) ++gap;
    return missing({Kind::forward, false, static_cast<std::int32_t>(gap / schedule_.micro_batches),
                    static_cast<std::int32_t>(gap % schedule_.micro_batches)},
                   ": every micro-batch passes through every stage");
  }

  Found once() {
    places_.assign(kinds_with_micro_batch * static_cast<std::size_t>(schedule_.stages()) *
                       static_cast<std::size_t>(schedule_.micro_batches),
                   nowhere);
    return first([&](std::size_t rank, std::size_t i, const Action& action) -> Found {
      if (!has_micro_batch(action.kind)) return std::nullopt;
      std::int32_t& place = place_of(action.kind, action);
      if (place != nowhere) return problem(rank, i, "repeats position ", place);
      place = static_cast<std::int32_t>(i);
      return std::nullopt;
    });
  }

  Found complete() {
    for (std::int32_t stage = 0; stage < schedule_.stages(); ++stage)
      for (std::int32_t micro_batch = 0; micro_batch < schedule_.micro_batches; ++micro_batch) {
        const auto has = [&](Kind kind) { return place_of(kind, {kind, false, stage, micro_batch}) != nowhere; };
        const auto lacks = [&](Kind kind, const char* why) {
          return missing(Action{kind, false, stage, micro_batch}, why);
        };
        if (!has(Kind::forward)) return lacks(Kind::forward, ": every micro-batch passes through every stage");
        const bool i = has(Kind::input_gradient), w = has(Kind::weight_gradient), b = has(Kind::backward);
        if (b && (i || w)) {
          const Action other{i ? Kind::input_gradient : Kind::weight_gradient, false, stage, micro_batch};
          return problem(rank_at(stage), static_cast<std::size_t>(place_of(other.kind, other)), "there is ",
                         text_of({Kind::backward, false, stage, micro_batch}),
                         " as well, which includes it: use either B, or I and W");
        }
        if (backward_ && !b && !i && !w) return lacks(Kind::backward, ", or I and W");
        if (i && !w) return lacks(Kind::weight_gradient, ", the other part of I");
        if (w && !i) return lacks(Kind::input_gradient, ", the other part of W");
        if (!messages_) continue;
        for (const Kind kind : {Kind::forward, b ? Kind::backward : Kind::input_gradient}) {
          if (!has(kind)) continue;
          const Action action{kind, false, stage, micro_batch};
          const auto send = send_after(schedule_, action), receive = receive_before(schedule_, action);
          const Kind sends = kind == Kind::forward ? Kind::send_forward : Kind::send_backward;
          const Kind receives = kind == Kind::forward ? Kind::receive_forward : Kind::receive_backward;
          if (send && !has(sends)) return lacks(sends, ": another rank has the stage that needs it");
          if (receive && !has(receives)) return lacks(receives, ": another rank has the stage that produces it");
          if (!send && has(sends)) return needless(sends, stage, micro_batch);
          if (!receive && has(receives)) return needless(receives, stage, micro_batch);
        }
        for (const Kind kind : {Kind::send_backward, Kind::receive_backward})
          if (!backward_ && has(kind)) return needless(kind, stage, micro_batch);
      }
    return std::nullopt;
  }

  Found order() {
    return first([&](std::size_t rank, std::size_t i, const Action& action) -> Found {
      const std::int32_t stage = action.stage;
      const auto needs = [&](Kind kind, std::int32_t of_stage, bool in_pair_too) -> Found {
        const Action other{kind, false, of_stage, action.micro_batch};
        const std::int32_t place = place_of(kind, other);
        const auto& list = schedule_.ranks[rank];
        // In a pair, neither may depend on the other.
        const std::size_t begin = in_pair_too && i > 0 && list[i - 1].with_next ? i - 1 : i;
        if (static_cast<std::size_t>(place) < begin) return std::nullopt;
        return problem(rank, i, "needs ", text_of(other),
                       static_cast<std::size_t>(place) > i ? ", which comes later, at position "
                                                           : ", with which it is overlapped, at position ",
                       place);
      };
      const auto done_here = [&](std::int32_t of_stage) {
        return place_of(Kind::backward, {Kind::backward, false, of_stage, action.micro_batch}) == nowhere
                   ? Kind::input_gradient
                   : Kind::backward;
      };
      switch (action.kind) {
        case Kind::forward:
          if (receive_before(schedule_, action)) return messages_ ? needs(Kind::receive_forward, stage, true) : Found{};
          return stage > 0 ? needs(Kind::forward, stage - 1, true) : Found{};
        case Kind::input_gradient:
        case Kind::backward:
          if (auto found = needs(Kind::forward, stage, true)) return found;
          if (receive_before(schedule_, action))
            return messages_ ? needs(Kind::receive_backward, stage, true) : Found{};
          return stage + 1 < schedule_.stages() ? needs(done_here(stage + 1), stage + 1, true) : Found{};
        case Kind::weight_gradient:
          return needs(Kind::input_gradient, stage, true);
        case Kind::send_forward:
          return needs(Kind::forward, stage, false);
        case Kind::send_backward:
          return needs(done_here(stage), stage, false);
        default:
          return std::nullopt;
      }
    });
  }

  Found sharding() {
    const auto stages = static_cast<std::size_t>(schedule_.stages());
    std::vector<bool> is_sharded(stages, false), is_whole(stages, false), is_reduced(stages, false);
    bool any_reduction = false;
    first([&](std::size_t, std::size_t, const Action& action) -> Found {
      if (action.kind == Kind::gather || action.kind == Kind::reshard)
        is_sharded[static_cast<std::size_t>(action.stage)] = true;
      any_reduction |= action.kind == Kind::reduce;
      return std::nullopt;
    });
    auto found = first([&](std::size_t rank, std::size_t i, const Action& action) -> Found {
      const auto stage = static_cast<std::size_t>(action.stage);
      switch (action.kind) {
        case Kind::gather:
          if (is_whole[stage]) return problem(rank, i, "the parameters of stage ", stage, " are already whole");
          is_whole[stage] = true;
          break;
        case Kind::reshard:
          if (!is_whole[stage]) return problem(rank, i, "the parameters of stage ", stage, " are not whole");
          is_whole[stage] = false;
          break;
        case Kind::reduce:
          if (is_reduced[stage])
            return problem(rank, i, "gradients of stage ", stage, " were already reduced: one reduction per batch");
          if (!backward_) return problem(rank, i, "without a backward there is nothing to reduce");
          is_reduced[stage] = true;
          break;
        case Kind::forward:
        case Kind::input_gradient:
        case Kind::backward:
          if (is_sharded[stage] && !is_whole[stage])
            return problem(rank, i, "the parameters of stage ", stage, " are sharded: a GATHER must precede it");
          [[fallthrough]];
        case Kind::weight_gradient:
          if (is_reduced[stage] && action.kind != Kind::forward && action.kind != Kind::input_gradient)
            return problem(rank, i, "gradients of stage ", stage,
                           " were reduced earlier; the reduction must come after all of them");
          break;
        default:
          break;
      }
      return std::nullopt;
    });
    if (found) return found;
    for (std::size_t stage = 0; stage < stages; ++stage)
      if (is_whole[stage])
        return missing({Kind::reshard, false, static_cast<std::int32_t>(stage)}, ": the parameters of stage ", stage,
                       " are whole at the end, but a schedule must end as it begins, since the next batch repeats it");
    if (!any_reduction) return std::nullopt;
    for (std::size_t stage = 0; stage < stages; ++stage)
      if (!is_reduced[stage])
        return missing({Kind::reduce, false, static_cast<std::int32_t>(stage)},
                       ": gradients of other stages are reduced");
    return std::nullopt;
  }

  /// Checks that the k-th receive of every channel takes the k-th message.
  Found channels() {
    if (!messages_) return std::nullopt;
    using Place = std::pair<std::size_t, std::size_t>;  // rank, position
    std::map<std::pair<int, int>, std::pair<std::vector<Place>, std::vector<Place>>> ends;
    first([&](std::size_t rank, std::size_t i, const Action& action) -> Found {
      if (!is_message(action.kind)) return std::nullopt;
      const int other = rank_of(schedule_, counterpart(action)), self = static_cast<int>(rank);
      if (is_send(action.kind))
        ends[{self, other}].first.emplace_back(rank, i);
      else
        ends[{other, self}].second.emplace_back(rank, i);
      return std::nullopt;
    });
    for (const auto& [channel, messages] : ends)
      for (std::size_t k = 0; k < messages.second.size(); ++k) {  // equal to the number of sends, as checked by
                                                                  // complete()
        const auto [from, sent_at] = messages.first[k];
        const auto [to, received_at] = messages.second[k];
        const Action& send = schedule_.ranks[from][sent_at];
        if (counterpart(send) == schedule_.ranks[to][received_at]) continue;
        return problem(to, received_at, "message ", k, " from rank ", channel.first, " is that of ", text_of(send),
                       " (its position ", sent_at, "): receives must be in the order of the sends");
      }
    return std::nullopt;
  }

  Found circles() {
    const Costs costs{.outstanding = messages_ ? rules_.outstanding : 0};
    lowered_ = messages_ ? schedule_ : with_messages(schedule_);
    const std::vector<Stopped> stopped = walk(lowered_, costs).stopped;
    if (!stopped.empty()) return circle(stopped);
    if (messages_ || rules_.outstanding == 0) return std::nullopt;
    const std::vector<Stopped> bounded = walk(lowered_, {.outstanding = rules_.outstanding}).stopped;
    return bounded.empty() ? std::nullopt : std::optional(circle(bounded));
  }

  /// Describes the cycle of waiting ranks, starting at one of them.
  Problem circle(const std::vector<Stopped>& stopped) const {
    std::map<int, const Stopped*> of_rank;
    for (const Stopped& one : stopped) of_rank[one.rank] = &one;
    const Stopped* at = &stopped.front();
    for (std::size_t i = 0; i < stopped.size(); ++i) at = of_rank.at(at->waits_for);  // leads into the cycle
    const Stopped* begin = at;
    for (const Stopped* next = of_rank.at(at->waits_for); next != at; next = of_rank.at(next->waits_for))
      if (next->rank < begin->rank) begin = next;
    at = begin;
    std::string text;
    do {
      text += concat(text.empty() ? "" : "; ", "rank ", at->rank, " at position ", own_position(*at), " (",
                     text_of(own_action(*at)), ") waits for ", waited_for(*at), " of rank ", at->waits_for);
      at = of_rank.at(at->waits_for);
    } while (at != begin);
    return {begin->rank, static_cast<std::int64_t>(own_position(*begin)), text_of(own_action(*begin)),
            "deadlock: " + text};
  }

  const Action& action_of(const Stopped& one) const {
    return lowered_.ranks[static_cast<std::size_t>(one.rank)][one.position];
  }

  /// Returns the position in the user's list. For a schedule of computations, this is the position of the computation
  /// after the message or, for a send, before it.
  std::size_t own_position(const Stopped& one) const {
    if (messages_) return one.position;
    const auto& list = lowered_.ranks[static_cast<std::size_t>(one.rank)];
    const auto here = list.begin() + static_cast<std::ptrdiff_t>(one.position);
    const auto before = static_cast<std::size_t>(
        std::count_if(list.begin(), here, [](const Action& action) { return !is_message(action.kind); }));
    return is_send(here->kind) ? before - 1 : before;
  }
  const Action& own_action(const Stopped& one) const {
    return schedule_.ranks[static_cast<std::size_t>(one.rank)][own_position(one)];
  }

  std::string waited_for(const Stopped& one) const {
    const Action& action = action_of(one);
    const Action other = counterpart(action);
    if (is_send(action.kind))
      return concat("room for ", text_of(action), ", since at most ", rules_.outstanding,
                    rules_.outstanding == 1 ? " message is" : " messages are", " in flight: for the next receive");
    if (messages_) return text_of(other);
    // A receive placed by with_messages() may be waiting only because it precedes the needed receive from the same
    // rank.
    const auto& list = schedule_.ranks[static_cast<std::size_t>(one.rank)];
    Action needed = other;
    for (std::size_t i = own_position(one), end = i + (list[i].with_next ? 2 : 1); i < end; ++i)
      if (const auto receive = receive_before(schedule_, list[i]))
        if (rank_of(schedule_, counterpart(*receive)) == one.waits_for) needed = counterpart(*receive);
    // The computation that produces the message.
    if (needed.kind == Kind::send_forward) return text_of({Kind::forward, false, needed.stage, needed.micro_batch});
    const bool whole = place_of(Kind::backward, needed) != nowhere;
    return text_of({whole ? Kind::backward : Kind::input_gradient, false, needed.stage, needed.micro_batch});
  }

  Problem needless(Kind kind, std::int32_t stage, std::int32_t micro_batch) const {
    const Action action{kind, false, stage, micro_batch};
    return problem(rank_at(stage), static_cast<std::size_t>(place_of(kind, action)),
                   "no message is needed: the neighbour does not exist, or is on the same rank");
  }

  std::size_t rank_at(std::int32_t stage) const {
    return static_cast<std::size_t>(schedule_.rank_of[static_cast<std::size_t>(stage)]);
  }
  std::int64_t number(const Action& action) const {
    return std::int64_t{action.stage} * schedule_.micro_batches + action.micro_batch;
  }
  std::size_t index_of(Kind kind, const Action& action) const {
    return static_cast<std::size_t>(number(action)) * kinds_with_micro_batch + static_cast<std::size_t>(kind);
  }
  std::int32_t& place_of(Kind kind, const Action& action) { return places_[index_of(kind, action)]; }
  std::int32_t place_of(Kind kind, const Action& action) const { return places_[index_of(kind, action)]; }

  const Schedule& schedule_;
  const Rules& rules_;
  bool backward_ = false, messages_ = false;
  std::vector<std::int32_t> places_;  ///< by stage, micro-batch and kind: the position in its rank's list
  Schedule lowered_;
};

}  // namespace

std::string text_of(const Problem& problem) {
  if (problem.rank < 0) return problem.reason;
  std::string text = concat("rank ", problem.rank, ", position ", problem.position);
  if (!problem.action.empty()) text += concat(" (", problem.action, ")");
  return concat(text, ": ", problem.reason);
}

std::optional<Problem> find_problem(const Schedule& schedule, const Rules& rules) {
  if (rules.outstanding < 0)
    throw InputError(
        concat("at most ", rules.outstanding, " messages in flight: it must be at least 1, or 0 for no bound"));
  return Checker(schedule, rules).run();
}

void check(const Schedule& schedule, const Rules& rules) {
  if (const auto problem = find_problem(schedule, rules))
    throw InputError(concat("schedule", schedule.name.empty() ? "" : " ", schedule.name, ": ", text_of(*problem)));
}

int least_outstanding(const Schedule& schedule) {
  check(schedule);
  const Schedule lowered = has_messages(schedule) ? schedule : with_messages(schedule);
  const auto is_enough = [&](int outstanding) { return walk(lowered, {.outstanding = outstanding}).stopped.empty(); };
  int most = 1;
  while (!is_enough(most)) most *= 2;  // equivalent to no bound: the number of messages always suffices
  int least = most / 2 + 1;
  while (least < most) {
    const int middle = least + (most - least) / 2;
    if (is_enough(middle))
      most = middle;
    else
      least = middle + 1;
  }
  return most;
}

InFlight count_in_flight(const Schedule& schedule) {
  const auto stages = static_cast<std::size_t>(schedule.stages()), ranks = schedule.ranks.size();
  InFlight peak{std::vector<int>(stages, 0), std::vector<int>(ranks, 0), std::vector<int>(ranks, 0)};
  if (!has_backward(schedule)) return peak;  // nothing is kept
  std::vector<int> now(stages, 0);
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    int together = 0, before_input = 0;
    for (const Action& action : schedule.ranks[rank]) {
      const auto stage = static_cast<std::size_t>(action.stage);
      if (action.kind == Kind::forward) {
        peak.of_stage[stage] = std::max(peak.of_stage[stage], ++now[stage]);
        peak.of_rank[rank] = std::max(peak.of_rank[rank], ++together);
        peak.of_rank_before_input[rank] = std::max(peak.of_rank_before_input[rank], ++before_input);
      }
      if (action.kind == Kind::backward || action.kind == Kind::weight_gradient) --now[stage], --together;
      if (is_input_gradient(action.kind)) --before_input;
    }
  }
  return peak;
}

}  // namespace tessera::layout::schedule
