#pragma once
/// \file
/// Runs a schedule, for tests: numbers pass through the stages in place of activations and gradients, over untagged
/// channels of bounded length, with ranks that advance in any order. It shares no code with the checker or the timer of
/// tessera/layout/schedule, so that it can verify both.

#include <tessera/layout/schedule/schedule.h>

#include <cstdint>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace tessera::layout::schedule {

class Executor {
 public:
  /// `outstanding`: most messages in a channel; 0: unlimited.
  Executor(const Schedule& schedule, int outstanding, std::uint64_t seed)
      : schedule_(schedule),
        outstanding_(static_cast<std::size_t>(outstanding)),
        random_(seed),
        ranks_(schedule.ranks.size()) {}

  /// "" if every stage has the gradients that one process computes; otherwise the error.
  std::string run() {
    for (;;) {
      std::vector<std::size_t> able;  // ranks that can execute their next action
      bool all_done = true;
      for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
        if (ranks_[rank].position == schedule_.ranks[rank].size()) continue;
        all_done = false;
        if (can_start(rank)) able.push_back(rank);
      }
      if (all_done) break;
      if (able.empty()) return "deadlock";
      const std::size_t rank = able[random_() % able.size()];
      const Action action = schedule_.ranks[rank][ranks_[rank].position];
      if (action.with_next) {
        const std::string error = both(rank, action);
        if (!error.empty()) return error;
        continue;
      }
      ++ranks_[rank].position;
      std::string error = act(rank, action);
      if (!error.empty()) return text_of(action) + ": " + error;
    }
    return judge();
  }

 private:
  using Key = std::pair<int, int>;  // stage, micro-batch
  struct Rank {
    std::size_t position = 0;
    std::map<Key, std::uint64_t> inputs, outputs, output_gradients, input_gradients;
    std::map<Key, std::uint64_t> waiting;  // contributions that W will add
    std::set<Key> forwards;
    std::map<int, std::uint64_t> sums;  // weight gradients, summed by stage
    std::map<int, int> summed;
    std::map<int, std::pair<std::uint64_t, int>> reduced;
    std::set<int> whole;
  };

  static std::uint64_t mix(std::uint64_t a, std::uint64_t b) {
    std::uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
    x = (x ^ (x >> 31)) * 0xbf58476d1ce4e5b9u;
    return x ^ (x >> 29);
  }
  static std::uint64_t output_of(int stage, std::uint64_t input) {
    return mix(static_cast<std::uint64_t>(stage), input);
  }
  static std::uint64_t gradient_of(int stage, std::uint64_t input, std::uint64_t output_gradient) {
    return mix(mix(static_cast<std::uint64_t>(stage) + 1000, input), output_gradient);
  }
  static std::uint64_t weight_gradient_of(int stage, std::uint64_t input, std::uint64_t output_gradient) {
    return mix(mix(static_cast<std::uint64_t>(stage) + 2000, input), output_gradient);
  }
  static std::uint64_t sample(int micro_batch) { return mix(77, static_cast<std::uint64_t>(micro_batch)); }
  static std::uint64_t loss_gradient(std::uint64_t output) { return mix(99, output); }

  bool has_backward() const {
    for (const auto& actions : schedule_.ranks)
      for (const Action& action : actions)
        if (action.kind == Kind::backward || action.kind == Kind::input_gradient ||
            action.kind == Kind::weight_gradient)
          return true;
    return false;
  }

  int home(int stage) const {
    return stage >= 0 && stage < schedule_.stages() ? schedule_.rank_of[static_cast<std::size_t>(stage)] : -1;
  }
  static int other_stage(const Action& message) {
    return message.kind == Kind::send_forward || message.kind == Kind::receive_backward ? message.stage + 1
                                                                                        : message.stage - 1;
  }

  bool can_start(std::size_t rank) {
    const Action& action = schedule_.ranks[rank][ranks_[rank].position];
    const int self = static_cast<int>(rank);
    switch (action.kind) {
      case Kind::send_forward:
      case Kind::send_backward:
        return outstanding_ == 0 || channels_[{self, home(other_stage(action))}].size() < outstanding_;
      case Kind::receive_forward:
      case Kind::receive_backward:
        return !channels_[{home(other_stage(action)), self}].empty();
      default:
        return true;
    }
  }

  /// Two actions that run as one: the second must not use the result of the first.
  std::string both(std::size_t rank, Action first) {
    const auto& actions = schedule_.ranks[rank];
    const std::size_t at = ranks_[rank].position;
    if (at + 1 == actions.size() || actions[at + 1].with_next) return "no pair";
    const Action second = actions[at + 1];
    const auto is_backward = [](Kind kind) { return kind == Kind::backward || kind == Kind::input_gradient; };
    if (!(first.kind == Kind::forward && is_backward(second.kind)) &&
        !(second.kind == Kind::forward && is_backward(first.kind)))
      return "no pair of forward and backward";
    const Rank before = ranks_[rank];
    if (const std::string error = act(rank, second); !error.empty()) return error;  // without the result of the first
    ranks_[rank] = before;
    if (const std::string error = act(rank, first); !error.empty()) return error;
    if (const std::string error = act(rank, second); !error.empty()) return error;
    ranks_[rank].position = at + 2;
    return "";
  }

  std::string act(std::size_t number, const Action& action) {
    Rank& rank = ranks_[number];
    const int self = static_cast<int>(number), stage = action.stage;
    if (home(stage) != self) return "the stage is not here";
    const Key key{stage, action.micro_batch};
    const bool has_number = action.kind != Kind::gather && action.kind != Kind::reshard && action.kind != Kind::reduce;
    if (has_number != (action.micro_batch >= 0)) return "a number of a micro-batch too many or too few";
    if (action.micro_batch >= schedule_.micro_batches) return "no such micro-batch";
    if (needs_parameters(action.kind) && is_sharded(stage) && !rank.whole.count(stage)) return "parameters are sharded";
    switch (action.kind) {
      case Kind::forward: {
        if (!rank.forwards.insert(key).second) return "a second time";
        std::uint64_t input = sample(action.micro_batch);
        if (stage > 0 && !take(home(stage - 1) == self ? rank.outputs : rank.inputs,
                               home(stage - 1) == self ? Key{stage - 1, action.micro_batch} : key, input))
          return "no input";
        rank.inputs[key] = input;
        rank.outputs[key] = output_of(stage, input);
        return "";
      }
      case Kind::input_gradient:
      case Kind::backward: {
        std::uint64_t input = 0, gradient = 0;
        if (!rank.forwards.count(key) || !take(rank.inputs, key, input)) return "no forward";
        if (stage + 1 == schedule_.stages()) {
          gradient = loss_gradient(output_of(stage, input));
        } else if (!take(home(stage + 1) == self ? rank.input_gradients : rank.output_gradients,
                         home(stage + 1) == self ? Key{stage + 1, action.micro_batch} : key, gradient)) {
          return "no gradient of the output";
        }
        rank.input_gradients[key] = gradient_of(stage, input, gradient);
        const std::uint64_t weights = weight_gradient_of(stage, input, gradient);
        if (action.kind == Kind::input_gradient)
          rank.waiting[key] = weights;
        else
          add(rank, stage, weights);
        return "";
      }
      case Kind::weight_gradient: {
        std::uint64_t weights = 0;
        if (!take(rank.waiting, key, weights)) return "no input gradient before";
        add(rank, stage, weights);
        return "";
      }
      case Kind::send_forward:
      case Kind::send_backward: {
        const int there = home(other_stage(action));
        if (there < 0 || there == self) return "nobody to send to";
        std::uint64_t value = 0;
        if (!take(action.kind == Kind::send_forward ? rank.outputs : rank.input_gradients, key, value))
          return "nothing to send";
        channels_[{self, there}].push_back(value);
        return "";
      }
      case Kind::receive_forward:
      case Kind::receive_backward: {
        auto& channel = channels_[{home(other_stage(action)), self}];
        (action.kind == Kind::receive_forward ? rank.inputs : rank.output_gradients)[key] = channel.front();
        channel.pop_front();
        return "";
      }
      case Kind::gather:
        return rank.whole.insert(stage).second ? "" : "whole already";
      case Kind::reshard:
        return rank.whole.erase(stage) == 1 ? "" : "not whole";
      case Kind::reduce:
        return rank.reduced.emplace(stage, std::pair(rank.sums[stage], rank.summed[stage])).second ? ""
                                                                                                   : "reduced twice";
    }
    return "unknown action";
  }

  static bool needs_parameters(Kind kind) {
    return kind == Kind::forward || kind == Kind::input_gradient || kind == Kind::backward;
  }
  bool is_sharded(int stage) const {
    for (const auto& actions : schedule_.ranks)
      for (const Action& action : actions)
        if (action.stage == stage && (action.kind == Kind::gather || action.kind == Kind::reshard)) return true;
    return false;
  }
  static bool take(std::map<Key, std::uint64_t>& from, const Key& key, std::uint64_t& value) {
    const auto at = from.find(key);
    if (at == from.end()) return false;
    value = at->second;
    from.erase(at);
    return true;
  }
  static void add(Rank& rank, int stage, std::uint64_t weights) {
    rank.sums[stage] += weights;
    ++rank.summed[stage];
  }

  std::string judge() {
    for (const auto& [ends, channel] : channels_)
      if (!channel.empty()) return "a message that nobody received";
    for (const Rank& rank : ranks_)
      if (!rank.whole.empty()) return "parameters are whole at the end: the next batch could not gather them";
    bool any_reduction = false;
    for (const Rank& rank : ranks_) any_reduction |= !rank.reduced.empty();
    std::map<int, std::uint64_t> wanted;  // the result of one process
    for (int micro_batch = 0; micro_batch < schedule_.micro_batches; ++micro_batch) {
      std::vector<std::uint64_t> inputs;
      std::uint64_t value = sample(micro_batch);
      for (int stage = 0; stage < schedule_.stages(); ++stage) {
        if (!ranks_[static_cast<std::size_t>(home(stage))].forwards.count({stage, micro_batch}))
          return "a forward is missing";
        inputs.push_back(value);
        value = output_of(stage, value);
      }
      const int last = schedule_.stages() - 1;
      if (ranks_[static_cast<std::size_t>(home(last))].outputs[{last, micro_batch}] != value) return "wrong outputs";
      value = loss_gradient(value);
      for (int stage = last; stage >= 0; --stage) {
        const std::uint64_t input = inputs[static_cast<std::size_t>(stage)];
        wanted[stage] += weight_gradient_of(stage, input, value);
        value = gradient_of(stage, input, value);
      }
    }
    if (!has_backward()) return any_reduction ? "nothing to reduce" : "";
    for (const auto& [stage, sum] : wanted) {
      Rank& rank = ranks_[static_cast<std::size_t>(home(stage))];
      if (rank.summed[stage] != schedule_.micro_batches || rank.sums[stage] != sum) return "wrong gradients";
      if (any_reduction && rank.reduced[stage] != std::pair(sum, schedule_.micro_batches)) return "reduced too early";
    }
    return "";
  }

  const Schedule& schedule_;
  std::size_t outstanding_;
  std::mt19937_64 random_;
  std::vector<Rank> ranks_;
  std::map<std::pair<int, int>, std::deque<std::uint64_t>> channels_;
};

}  // namespace tessera::layout::schedule
