// The unit state machine: actions that must never occur for any events, and the actions of an ordinary step.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/layout/residency.h>

#include <algorithm>
#include <string>

namespace {

using namespace tessera::layout;
using Kind = ResidencyAction::Kind;
using State = Residency::State;

/// Executes actions as the engine would, and rejects impossible ones.
struct Model {
  explicit Model(std::size_t n) : state(n, State::absent), pins(n, 0) {}
  void execute(const Residency::Actions& actions) {
    for (const auto& [kind, unit] : actions) {
      if (kind == Kind::gather) {
        RC_ASSERT(state[unit] == State::absent);
        state[unit] = State::gathering;
        ++gathers;
      } else if (kind == Kind::wait) {
        RC_ASSERT(state[unit] == State::gathering);
        state[unit] = State::present;
      } else {
        RC_ASSERT(state[unit] == State::present);
        RC_ASSERT(pins[unit] == 0);
        state[unit] = State::absent;
      }
    }
  }
  std::vector<State> state;
  std::vector<int> pins;
  int gathers = 0;
};

rc::Gen<UnitPolicy> any_policy() {
  return rc::gen::map(rc::gen::tuple(rc::gen::arbitrary<bool>(), rc::gen::arbitrary<bool>(), rc::gen::arbitrary<bool>(),
                                     rc::gen::arbitrary<bool>()),
                      [](const std::tuple<bool, bool, bool, bool>& t) {
                        return UnitPolicy{std::get<0>(t), std::get<1>(t), std::get<2>(t), std::get<3>(t)};
                      });
}

RC_GTEST_PROP(Residency, no_events_lead_to_an_impossible_action, ()) {
  const auto n = *rc::gen::inRange<std::size_t>(1, 7);
  const auto policies = *rc::gen::container<std::vector<UnitPolicy>>(n, any_policy());
  const ResidencyOptions options{
      *rc::gen::arbitrary<bool>(),
      *rc::gen::element(BackwardPrefetch::none, BackwardPrefetch::pre, BackwardPrefetch::post),
      *rc::gen::inRange(0, 4)};
  Residency residency(policies, options);
  Model model(n);
  std::vector<std::vector<std::size_t>> running;  // operators that hold pins
  const auto events = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 100));
  for (const int event : events) {
    if (event < 60) {
      std::vector<std::size_t> units;
      for (std::size_t u = 0; u < n; ++u)
        if (*rc::gen::inRange(0, static_cast<int>(n)) == 0) units.push_back(u);
      const bool quick = residency.in_use(units);
      const auto actions = residency.touch(units);
      if (quick) RC_ASSERT(actions.empty());
      model.execute(actions);
      for (const std::size_t u : units) {
        RC_ASSERT(model.state[u] == State::present);
        ++model.pins[u];
      }
      running.push_back(units);
    }
    if (!running.empty() && event % 3 != 0) {
      const auto units = running.back();
      running.pop_back();
      for (const std::size_t u : units) --model.pins[u];
      model.execute(residency.unpin(units));
    }
    if (event >= 60 && event < 70 && !residency.in_backward()) model.execute(residency.backward_begin());
    if (event >= 70 && event < 85 && residency.in_backward())
      model.execute(residency.gradients_complete(static_cast<std::size_t>(event) % n));
    if (event >= 85 && event < 95 && residency.in_backward()) {
      model.execute(residency.backward_end());
      for (std::size_t u = 0; u < n; ++u)
        if (policies[u].release_after_backward && model.pins[u] == 0) RC_ASSERT(model.state[u] == State::absent);
    }
    if (event >= 95) {
      model.execute(residency.release_all());
      for (std::size_t u = 0; u < n; ++u)
        if (model.pins[u] == 0) RC_ASSERT(model.state[u] == State::absent);
    }
    for (std::size_t u = 0; u < n; ++u) {
      RC_ASSERT(residency.state(u) == model.state[u]);
      RC_ASSERT(residency.pins(u) == model.pins[u]);
    }
    std::size_t gathering = 0;
    for (const State s : model.state) gathering += s == State::gathering;
    RC_ASSERT(gathering <= static_cast<std::size_t>(options.prefetch_depth));  // prefetch is bounded
  }
}

/// Forward through root, then the blocks in order, then root (the head); then backward. Units: 0 = root, 1...n =
/// blocks.
struct Step {
  Residency& residency;
  std::size_t blocks;
  std::string log = {};
  std::size_t most_present = 0;
  std::vector<bool> present = std::vector<bool>(blocks + 1, false);

  void note(const Residency::Actions& actions) {
    for (const auto& [kind, unit] : actions) {
      log += (kind == Kind::gather ? "g" : kind == Kind::wait ? "w" : "r") + std::to_string(unit) + " ";
      if (kind == Kind::gather) present[unit] = true;
      if (kind == Kind::release) present[unit] = false;
      most_present = std::max(most_present, static_cast<std::size_t>(std::count(present.begin(), present.end(), true)));
    }
  }
  void use(std::size_t unit) {
    note(residency.touch(std::vector{unit}));
    note(residency.unpin(std::vector{unit}));
  }
  void forward() {
    use(0);
    for (std::size_t b = 1; b <= blocks; ++b) use(b), use(b);
    use(0);
  }
  void backward() {
    note(residency.backward_begin());
    use(0);
    for (std::size_t b = blocks; b >= 1; --b) {
      use(b);
      note(residency.gradients_complete(b));
    }
    note(residency.gradients_complete(0));
    note(residency.backward_end());
  }
};

std::vector<UnitPolicy> full_shard(std::size_t blocks) {
  std::vector<UnitPolicy> policies(blocks + 1);
  policies[0].release_after_forward = false;
  return policies;
}

TEST(Residency, a_first_step_gathers_on_demand_and_predicts_its_backward) {
  Residency residency(full_shard(3), {});
  Step step{residency, 3};
  step.forward();
  EXPECT_EQ(step.log, "g0 w0 g1 w1 r1 g2 w2 r2 g3 w3 ");
  step.log.clear();
  step.backward();
  // Block 3 was used last and is still present; 2 and 1 are gathered while their successor computes.
  EXPECT_EQ(step.log, "g2 r3 g1 w2 r2 w1 r1 r0 ");
}

TEST(Residency, a_later_step_gathers_one_unit_ahead) {
  Residency residency(full_shard(4), {});
  Step step{residency, 4};
  step.forward();
  step.backward();
  step.log.clear();
  step.forward();
  EXPECT_EQ(step.log, "g0 g1 w0 g2 w1 r1 g3 w2 r2 g4 w3 r3 w4 ");
  EXPECT_EQ(step.most_present, 3u);  // root, the current block, the next one
  step.log.clear();
  step.backward();
  EXPECT_EQ(step.log, "g3 r4 g2 w3 r3 g1 w2 r2 w1 r1 r0 ");
}

TEST(Residency, whole_parameters_stay_until_the_shards_change) {
  Residency residency(std::vector<UnitPolicy>(3, {.release_after_forward = false, .release_after_backward = false}),
                      {});
  Step step{residency, 2};
  step.forward();
  step.backward();
  step.log.clear();
  step.forward();
  step.backward();
  EXPECT_EQ(step.log, "");
  step.note(residency.release_all());
  EXPECT_EQ(step.log, "r0 r1 r2 ");
  step.log.clear();
  step.forward();
  EXPECT_EQ(step.log, "g0 g1 w0 g2 w1 w2 ");
}

TEST(Residency, forward_passes_without_backward_are_predicted_too) {
  Residency residency(full_shard(3), {});
  Step step{residency, 3};
  step.forward();
  step.forward();
  step.log.clear();
  step.forward();
  EXPECT_EQ(step.log, "r3 g1 g2 w1 r1 g3 w2 r2 w3 ");
}

TEST(Residency, a_failed_prediction_lets_go_of_what_was_gathered_ahead) {
  Residency residency(full_shard(4), {});
  Step step{residency, 4};
  step.forward();
  step.backward();
  step.log.clear();
  step.use(0);
  step.use(3);  // block 1 was being gathered
  EXPECT_EQ(step.log, "g0 g1 w0 w1 r1 g3 g4 w3 ");
}

TEST(Residency, what_other_ranks_ask_for_waits_for_its_use_here) {
  Residency residency(full_shard(3), {.forward_prefetch = false, .backward_prefetch = BackwardPrefetch::none});
  Step step{residency, 3};
  step.note(residency.admit(2));
  step.note(residency.admit(2));
  step.use(2);
  step.use(1);
  EXPECT_EQ(step.log, "g2 w2 r2 g1 w1 ");
  step.note(residency.admit(3));
  step.note(residency.backward_begin());
  step.note(residency.backward_end());
  EXPECT_EQ(step.log, "g2 w2 r2 g1 w1 g3 w3 r1 r3 ");
}

TEST(Residency, a_unit_at_both_ends_may_go_in_between) {
  auto policies = full_shard(2);
  policies[0] = {.release_after_forward = true, .release_when_left = true};
  Residency residency(policies, {.forward_prefetch = false, .backward_prefetch = BackwardPrefetch::none});
  Step step{residency, 2};
  step.forward();
  EXPECT_EQ(step.log, "g0 w0 r0 g1 w1 r1 g2 w2 r2 g0 w0 ");
  step.log.clear();
  step.backward();
  EXPECT_EQ(step.log, "r0 g2 w2 r2 g1 w1 r1 ");
}

TEST(Residency, a_release_waits_for_the_operator) {
  Residency residency(full_shard(1), {});
  const std::vector<std::size_t> one{1};
  residency.touch(one);
  residency.backward_begin();
  EXPECT_EQ(residency.gradients_complete(1), Residency::Actions());
  EXPECT_EQ(residency.unpin(one), (Residency::Actions{{Kind::release, 1}}));
}

}  // namespace
