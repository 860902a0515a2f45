#include <tessera/layout/schedule/lower.h>

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include <tessera/base/error.h>
#include <tessera/layout/schedule/channels.h>

namespace tessera::layout::schedule {
namespace {

/// Returns the index of the second action if a pair begins at i, otherwise i.
std::size_t end_of_pair(const std::vector<Action>& actions, std::size_t i) {
  return actions[i].with_next && i + 1 < actions.size() ? i + 1 : i;
}

/// A message to a rank: the receive, and the index of the computation that needs it.
struct Arrival {
  Action receive;
  std::size_t needed_at;
};

/// Throws Error unless every action is for a stage on its rank and for an existing micro-batch.
void check_ranges(const Schedule& schedule) {
  TESSERA_CHECK(schedule.micro_batches >= 1, schedule.micro_batches, " micro-batches");
  for (const int rank : schedule.rank_of)
    TESSERA_CHECK(rank >= 0 && static_cast<std::size_t>(rank) < schedule.ranks.size(), "rank ", rank, " of ",
                  schedule.ranks.size());
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank)
    for (const Action& action : schedule.ranks[rank]) {
      TESSERA_CHECK(action.stage >= 0 && action.stage < schedule.stages(), "stage ", action.stage, " of ",
                    schedule.stages());
      TESSERA_CHECK(rank_of(schedule, action) == static_cast<int>(rank), "stage ", action.stage, " is on rank ",
                    rank_of(schedule, action), ", its action on rank ", rank);
      TESSERA_CHECK(
          !has_micro_batch(action.kind) || (action.micro_batch >= 0 && action.micro_batch < schedule.micro_batches),
          "micro-batch ", action.micro_batch, " of ", schedule.micro_batches);
    }
}

}  // namespace

const WordTable& words_of(Gathering) {
  static const WordTable words = {{"none", "per_batch", "per_micro_batch"}};
  return words;
}

Schedule with_messages(const Schedule& schedule) {
  check_ranges(schedule);
  constexpr auto nowhere = std::numeric_limits<std::size_t>::max();
  const auto keep = [](const Action& action) { return !is_message(action.kind); };
  // Index of the computation that needs each message: (stage, micro-batch) -> its F, or its I or B.
  const auto all = static_cast<std::size_t>(schedule.stages()) * static_cast<std::size_t>(schedule.micro_batches);
  std::vector<std::size_t> forward_at(all, nowhere), backward_at(all, nowhere);
  std::vector<std::vector<Action>> kept(schedule.ranks.size());
  const auto key = [&](int stage, int micro_batch) {
    return static_cast<std::size_t>(stage) * static_cast<std::size_t>(schedule.micro_batches) +
           static_cast<std::size_t>(micro_batch);
  };
  for (std::size_t rank = 0; rank < kept.size(); ++rank) {
    std::copy_if(schedule.ranks[rank].begin(), schedule.ranks[rank].end(), std::back_inserter(kept[rank]), keep);
    for (std::size_t i = 0; i < kept[rank].size(); ++i) {
      const Action& action = kept[rank][i];
      // The two actions of a pair start together, so both need their inputs before the first.
      const std::size_t at = i > 0 && kept[rank][i - 1].with_next ? i - 1 : i;
      if (action.kind == Kind::forward) forward_at[key(action.stage, action.micro_batch)] = at;
      if (action.kind == Kind::backward || action.kind == Kind::input_gradient)
        backward_at[key(action.stage, action.micro_batch)] = at;
    }
  }
  // (receiver, sender) -> messages in sending order.
  std::map<std::pair<int, int>, std::vector<Arrival>> channels;
  for (const auto& actions : kept)
    for (const Action& action : actions)
      if (const auto send = send_after(schedule, action)) {
        const Action receive = counterpart(*send);
        const std::size_t at = receive.kind == Kind::receive_forward
                                   ? forward_at[key(receive.stage, receive.micro_batch)]
                                   : backward_at[key(receive.stage, receive.micro_batch)];
        TESSERA_CHECK(at != nowhere, text_of(receive), " is not needed by any computation");
        channels[{rank_of(schedule, receive), rank_of(schedule, *send)}].push_back({receive, at});
      }
  Schedule lowered = schedule;
  for (auto& actions : lowered.ranks) actions.clear();
  std::vector<std::vector<std::vector<Action>>> receives(kept.size());  // rank -> index -> receives before it
  for (std::size_t rank = 0; rank < kept.size(); ++rank) receives[rank].resize(kept[rank].size());
  for (auto& [ends, arrivals] : channels) {
    for (std::size_t i = arrivals.size(); i-- > 1;)
      arrivals[i - 1].needed_at = std::min(arrivals[i - 1].needed_at, arrivals[i].needed_at);
    for (const Arrival& arrival : arrivals)
      receives[static_cast<std::size_t>(ends.first)][arrival.needed_at].push_back(arrival.receive);
  }
  for (std::size_t rank = 0; rank < kept.size(); ++rank) {
    auto& out = lowered.ranks[rank];
    for (std::size_t i = 0; i < kept[rank].size(); ++i) {
      out.insert(out.end(), receives[rank][i].begin(), receives[rank][i].end());
      const std::size_t last = end_of_pair(kept[rank], i);
      for (std::size_t j = i; j <= last; ++j) out.push_back(kept[rank][j]);
      for (; i < last; ++i)
        if (const auto send = send_after(schedule, kept[rank][i])) out.push_back(*send);
      if (const auto send = send_after(schedule, kept[rank][i])) out.push_back(*send);
    }
  }
  return lowered;
}

Schedule with_sharding(const Schedule& schedule, Gathering gathering, bool reduce) {
  Schedule out = schedule;
  for (auto& actions : out.ranks) {
    std::vector<Action> kept;
    std::copy_if(actions.begin(), actions.end(), std::back_inserter(kept),
                 [](const Action& action) { return is_compute(action.kind) || is_message(action.kind); });
    const auto needs_parameters = [](Kind kind) { return is_compute(kind) && kind != Kind::weight_gradient; };
    const auto gives_gradients = [](Kind kind) { return kind == Kind::weight_gradient || kind == Kind::backward; };
    std::map<int, std::size_t> first, last, last_gradient;  // by stage
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const Action& action = kept[i];
      const std::size_t begin = i > 0 && kept[i - 1].with_next ? i - 1 : i, end = end_of_pair(kept, i);
      if (needs_parameters(action.kind)) {
        first.try_emplace(action.stage, begin);
        last[action.stage] = end;
      }
      if (gives_gradients(action.kind)) last_gradient[action.stage] = end;
    }
    actions.clear();
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const std::size_t end = end_of_pair(kept, i);
      std::vector<int> stages;  // stages whose parameters the action or pair needs, each once
      for (std::size_t j = i; j <= end; ++j)
        if (needs_parameters(kept[j].kind) && std::find(stages.begin(), stages.end(), kept[j].stage) == stages.end())
          stages.push_back(kept[j].stage);
      for (const int stage : stages)
        if (gathering == Gathering::per_micro_batch || (gathering == Gathering::per_batch && first[stage] == i))
          actions.push_back({Kind::gather, false, stage});
      for (std::size_t j = i; j <= end; ++j) actions.push_back(kept[j]);
      for (const int stage : stages)
        if (gathering == Gathering::per_micro_batch || (gathering == Gathering::per_batch && last[stage] == end))
          actions.push_back({Kind::reshard, false, stage});
      for (std::size_t j = i; reduce && j <= end; ++j)
        if (gives_gradients(kept[j].kind) && last_gradient[kept[j].stage] == end)
          actions.push_back({Kind::reduce, false, kept[j].stage});
      i = end;
    }
  }
  return out;
}

}  // namespace tessera::layout::schedule
