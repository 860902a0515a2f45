// Runs the schedules on a simulated network in which a rank's values are sets of contributions.
#include <tessera/base/error.h>
#include <tessera/wire/ring/schedule.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <utility>
#include <vector>

namespace {

using namespace tessera;
using namespace tessera::wire::ring;

// The ranks whose inputs a block contains; `content` selects one of the rank's three memories.
struct Value {
  std::multiset<int> ranks;
  Content content = Content::input;
};

struct Simulation {
  int size;
  Collective collective;
  std::vector<Schedule> schedules;
  std::vector<std::vector<Value>> values;                               // [rank][block]
  std::map<std::pair<int, int>, std::deque<std::vector<Value>>> wires;  // {from, to}
  std::vector<std::size_t> sent, received;                              // completed steps per rank

  Simulation(Algorithm algorithm, Collective what, int ranks)
      : size(ranks), collective(what), sent(ranks), received(ranks) {
    for (int r = 0; r < size; ++r) {
      schedules.push_back(make_schedule(algorithm, collective, r, size));
      std::vector<Value> mine(static_cast<std::size_t>(size));
      for (int b = 0; b < size; ++b) {
        if (collective != Collective::all_gather) mine[b] = {{r}, Content::input};
        if (collective == Collective::all_gather && b == r) mine[b] = {{r}, Content::result};
      }
      values.push_back(std::move(mine));
    }
  }

  // Ranks progress in any order; a send of step k waits for the receives of earlier steps.
  void run(const std::vector<int>& order) {
    for (bool progress = true; progress;) {
      progress = false;
      for (const int r : order) {
        progress = try_send(r) || progress;
        progress = try_receive(r) || progress;
      }
    }
    for (int r = 0; r < size; ++r) {
      RC_ASSERT(sent[r] == schedules[r].size() && received[r] == schedules[r].size());
    }
    for (const auto& [ends, wire] : wires) RC_ASSERT(wire.empty());
  }

  bool try_send(int r) {
    if (sent[r] >= schedules[r].size() || sent[r] > received[r]) return false;
    const Step& step = schedules[r][sent[r]];
    if (step.to >= 0) {
      RC_ASSERT(step.to != r && step.to < size && !step.send.empty());
      std::vector<Value> message;
      for (int b = step.send.begin; b < step.send.end; ++b) {
        RC_ASSERT(values[r][b].content == step.sends);
        message.push_back(values[r][b]);
      }
      wires[{r, step.to}].push_back(std::move(message));
    }
    ++sent[r];
    return true;
  }

  bool try_receive(int r) {
    if (received[r] >= schedules[r].size() || received[r] >= sent[r]) return false;
    const Step& step = schedules[r][received[r]];
    if (step.from >= 0) {
      auto& wire = wires[{step.from, r}];
      if (wire.empty()) return false;
      const std::vector<Value> message = wire.front();
      wire.pop_front();
      RC_ASSERT(static_cast<int>(message.size()) == step.recv.end - step.recv.begin);
      for (int b = step.recv.begin; b < step.recv.end; ++b) {
        const Value& got = message[static_cast<std::size_t>(b - step.recv.begin)];
        Value& own = values[r][b];
        RC_ASSERT(got.content == step.receives);
        if (step.reduce) {
          RC_ASSERT(own.content == (step.first ? Content::input : Content::partial));
          own.ranks.insert(got.ranks.begin(), got.ranks.end());
          own.content = step.completes ? Content::result : Content::partial;
          if (step.completes) RC_ASSERT(own.ranks == everyone());
          // A reduce-scatter may forward a complete block before it is rounded.
          if (step.completes && collective == Collective::reduce_scatter && b != r) own.content = Content::partial;
        } else {
          if (collective != Collective::all_gather) RC_ASSERT(got.ranks == everyone());
          own = {got.ranks, Content::result};
        }
      }
    }
    ++received[r];
    return true;
  }

  std::multiset<int> everyone() const {
    std::multiset<int> all;
    for (int r = 0; r < size; ++r) all.insert(r);
    return all;
  }

  void check() const {
    for (int r = 0; r < size; ++r) {
      for (int b = 0; b < size; ++b) {
        const Value& value = values[r][b];
        if (collective == Collective::reduce_scatter && b != r) continue;
        RC_ASSERT(value.content == Content::result);
        RC_ASSERT(value.ranks == (collective == Collective::all_gather ? std::multiset<int>{b} : everyone()));
      }
    }
  }
};

const std::vector<Algorithm> algorithms = {Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling,
                                           Algorithm::doubling};
const std::vector<Collective> collectives = {Collective::all_reduce, Collective::reduce_scatter,
                                             Collective::all_gather};

std::vector<int> ascending(int size) {
  std::vector<int> order(static_cast<std::size_t>(size));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

RC_GTEST_PROP(RingSchedule, any_number_of_ranks_in_any_order, ()) {
  const int size = *rc::gen::inRange(2, 70);
  const Algorithm algorithm = *rc::gen::elementOf(algorithms);
  const Collective collective = *rc::gen::elementOf(collectives);
  RC_PRE(implements(algorithm, collective));
  std::vector<int> order = ascending(size);
  std::shuffle(order.begin(), order.end(), std::mt19937_64(*rc::gen::arbitrary<std::uint64_t>()));
  Simulation simulation(algorithm, collective, size);
  simulation.run(order);
  simulation.check();
}

TEST(RingSchedule, volumes_are_the_least_possible) {
  for (const int size : {2, 3, 4, 5, 7, 8, 16}) {
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling}) {
      if (algorithm == Algorithm::halving_doubling && (size & (size - 1)) != 0) continue;
      for (const Collective collective : collectives) {
        const int least = (size - 1) * (collective == Collective::all_reduce ? 2 : 1);
        for (int rank = 0; rank < size; ++rank) {
          int blocks = 0;
          for (const Step& step : make_schedule(algorithm, collective, rank, size)) {
            if (step.to >= 0) blocks += step.send.end - step.send.begin;
          }
          EXPECT_EQ(blocks, least) << algorithm_name(algorithm) << " of " << size;
        }
      }
    }
  }
}

TEST(RingSchedule, steps_are_few) {
  EXPECT_EQ(make_schedule(Algorithm::doubling, Collective::all_reduce, 3, 16).size(), 4U);
  EXPECT_EQ(make_schedule(Algorithm::halving_doubling, Collective::reduce_scatter, 3, 16).size(), 4U);
  EXPECT_EQ(make_schedule(Algorithm::halving_doubling, Collective::all_reduce, 3, 16).size(), 8U);
  EXPECT_EQ(make_schedule(Algorithm::ring, Collective::all_reduce, 3, 16).size(), 30U);
  EXPECT_TRUE(make_schedule(Algorithm::ring, Collective::all_reduce, 0, 1).empty());
}

TEST(RingSchedule, rejects_what_is_not_implemented) {
  EXPECT_FALSE(implements(Algorithm::doubling, Collective::all_gather));
  EXPECT_THROW(make_schedule(Algorithm::doubling, Collective::all_gather, 0, 2), Error);
  EXPECT_THROW(make_schedule(Algorithm::ring, Collective::all_gather, 2, 2), Error);
}

}  // namespace
