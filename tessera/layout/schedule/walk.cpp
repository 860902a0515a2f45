#include <tessera/layout/schedule/walk.h>

#include <algorithm>
#include <map>

#include <tessera/layout/schedule/channels.h>

namespace tessera::layout::schedule {
namespace {

struct Channel {
  int from = 0, to = 0;
  std::vector<double> arrived, received;  ///< times of the messages, in order
  double free_at = 0;                     ///< when the last message has been sent
};

class Walk {
 public:
  Walk(const Schedule& schedule, const Costs& costs)
      : schedule_(schedule),
        costs_(costs),
        ranks_(schedule.ranks.size()),
        gathered_at_(static_cast<std::size_t>(schedule.stages()), 0) {
    std::map<std::pair<int, int>, std::size_t> numbers;
    const auto number = [&](int from_stage, int to_stage) -> std::size_t {
      if (to_stage < 0 || to_stage >= schedule.stages()) return 0;
      const std::pair<int, int> ends = {schedule.rank_of[static_cast<std::size_t>(from_stage)],
                                        schedule.rank_of[static_cast<std::size_t>(to_stage)]};
      const auto [at, is_new] = numbers.try_emplace(ends, channels_.size());
      if (is_new) channels_.push_back({ends.first, ends.second, {}, {}, 0});
      return at->second;
    };
    for (int stage = 0; stage < schedule.stages(); ++stage) {
      to_next_.push_back(number(stage, stage + 1));
      to_previous_.push_back(number(stage, stage - 1));
    }
  }

  Walked run() {
    Walked walked;
    walked.ranks.resize(ranks_.size());
    std::vector<std::size_t> ready;
    for (std::size_t rank = ranks_.size(); rank-- > 0;) {
      walked.ranks[rank].reserve(schedule_.ranks[rank].size());
      ready.push_back(rank);
    }
    while (!ready.empty()) {
      const std::size_t rank = ready.back();
      ready.pop_back();
      const std::size_t before = ranks_[rank].position;
      while (step(rank, walked.ranks[rank])) {
      }
      if (ranks_[rank].position == before) continue;
      // Ranks that waited for this one check again.
      ready.insert(ready.end(), ranks_[rank].waiters.begin(), ranks_[rank].waiters.end());
      ranks_[rank].waiters.clear();
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank)
      if (ranks_[rank].position < schedule_.ranks[rank].size())
        walked.stopped.push_back({static_cast<int>(rank), ranks_[rank].position, ranks_[rank].waits_for});
    return walked;
  }

 private:
  struct Rank {
    std::size_t position = 0;
    double clock = 0;             ///< end of its last computation or message
    double collectives_free = 0;  ///< end of its last gather or reduction
    int waits_for = -1;
    std::vector<std::size_t> waiters;
  };

  /// The channel and size of a message.
  Channel& channel_of(const Action& send) {
    const auto stage = static_cast<std::size_t>(send.stage);
    return channels_[send.kind == Kind::send_forward ? to_next_[stage] : to_previous_[stage]];
  }
  double bytes_of(const Action& send) const {
    return costs_.of(send.kind == Kind::send_forward ? send.stage : send.stage - 1).output_bytes;
  }

  double time_of(const Action& action) const {
    const StageCosts& costs = costs_.of(action.stage);
    switch (action.kind) {
      case Kind::forward:
        return costs.forward;
      case Kind::input_gradient:
        return costs.input_gradient;
      case Kind::weight_gradient:
        return costs.weight_gradient;
      default:
        return costs.whole_backward();
    }
  }

  bool stop(std::size_t rank, int waits_for) {
    ranks_[rank].waits_for = waits_for;
    ranks_[static_cast<std::size_t>(waits_for)].waiters.push_back(rank);
    return false;
  }

  bool compute(Rank& rank, const std::vector<Action>& actions, std::vector<TimedAction>& done) {
    const Action& first = actions[rank.position];
    double start = std::max(rank.clock, gathered_at_[static_cast<std::size_t>(first.stage)]);
    double time = time_of(first);
    if (first.with_next) {
      const Action& second = actions[rank.position + 1];
      start = std::max(start, gathered_at_[static_cast<std::size_t>(second.stage)]);
      const double other = time_of(second), whole = time + other;
      // The two halves are recorded one after the other, each with its share of their common time.
      const double together = whole - costs_.overlap * std::min(time, other);
      const double middle = start + (whole > 0 ? together * time / whole : 0);
      done.push_back({first, start, middle});
      done.push_back({second, middle, start + together});
      rank.position += 2;
      rank.clock = start + together;
      return true;
    }
    done.push_back({first, start, start + time});
    ++rank.position;
    rank.clock = start + time;
    return true;
  }

  bool step(std::size_t number, std::vector<TimedAction>& done) {
    Rank& rank = ranks_[number];
    const auto& actions = schedule_.ranks[number];
    if (rank.position == actions.size()) return false;
    const Action& action = actions[rank.position];
    if (is_compute(action.kind)) return compute(rank, actions, done);
    double start = rank.clock, end = rank.clock;
    if (is_send(action.kind)) {
      Channel& channel = channel_of(action);
      const std::size_t sent = channel.arrived.size(), room = static_cast<std::size_t>(costs_.outstanding);
      if (room > 0 && sent >= room) {
        if (channel.received.size() + room <= sent) return stop(number, channel.to);
        end = std::max(start, channel.received[sent - room]);
      }
      channel.free_at = std::max(end, channel.free_at) + bytes_of(action) * costs_.seconds_per_byte;
      channel.arrived.push_back(channel.free_at + costs_.latency);
    } else if (is_message(action.kind)) {
      Channel& channel = channel_of(counterpart(action));
      const std::size_t received = channel.received.size();
      if (received == channel.arrived.size()) return stop(number, channel.from);
      end = std::max(start, channel.arrived[received]);
      channel.received.push_back(end);
    } else if (action.kind != Kind::reshard) {
      const StageCosts& costs = costs_.of(action.stage);
      start = std::max(start, rank.collectives_free);
      end = rank.collectives_free = start + (action.kind == Kind::gather ? costs.gather : costs.reduce);
      if (action.kind == Kind::gather) gathered_at_[static_cast<std::size_t>(action.stage)] = end;
      done.push_back({action, start, end});
      ++rank.position;
      return true;  // concurrent with computations: the rank's clock does not advance
    }
    done.push_back({action, start, end});
    rank.clock = end;
    ++rank.position;
    return true;
  }

  const Schedule& schedule_;
  const Costs& costs_;
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
  std::vector<std::size_t> to_next_, to_previous_;  ///< per stage, the channel to its neighbour's rank
  std::vector<double> gathered_at_;                 ///< per stage
};

}  // namespace

Walked walk(const Schedule& schedule, const Costs& costs) { return Walk(schedule, costs).run(); }

}  // namespace tessera::layout::schedule
