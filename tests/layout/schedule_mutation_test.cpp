// Random changes of valid schedules: each result either computes the right numbers (schedule_executor.h) or is refused.

#include <gtest/gtest.h>

#include <tessera/layout/schedule/check.h>
#include <tessera/layout/schedule/lower.h>
#include <tessera/layout/schedule/table.h>

#include <random>

#include "schedule_executor.h"

namespace tessera::layout::schedule {
namespace {

using Random = std::mt19937_64;

std::size_t below(Random& random, std::size_t end) { return static_cast<std::size_t>(random() % end); }

std::vector<Schedule> originals() {
  std::vector<Schedule> all;
  for (const ScheduleRow& row : schedules())
    for (const int ranks : {1, 2, 3, 4})
      for (const int micro_batches : {1, 3, 6}) {
        const Schedule schedule = make_schedule(row.name, {ranks, 0, micro_batches});
        all.push_back(with_messages(schedule));
        all.push_back(with_messages(with_sharding(schedule, Gathering::per_batch, true)));
        all.push_back(with_messages(with_sharding(schedule, Gathering::per_micro_batch, false)));
        all.push_back(with_messages(forward_only(schedule)));
      }
  return all;
}

void change(Schedule& schedule, Random& random) {
  auto& list = schedule.ranks[below(random, schedule.ranks.size())];
  if (list.empty()) return;
  const std::size_t at = below(random, list.size());
  const auto place = list.begin() + static_cast<std::ptrdiff_t>(at);
  switch (below(random, 10)) {
    case 0:
    case 1:
    case 2:  // swap neighbours: often still valid
      if (at + 1 < list.size()) std::swap(list[at], list[at + 1]);
      break;
    case 3:
      std::swap(list[at], list[below(random, list.size())]);
      break;
    case 4: {
      const Action action = *place;
      list.erase(place);
      list.insert(list.begin() + static_cast<std::ptrdiff_t>(below(random, list.size() + 1)), action);
      break;
    }
    case 5:
      list.erase(place);
      break;
    case 6: {
      const Action action = *place;
      auto& other = schedule.ranks[below(random, schedule.ranks.size())];
      other.insert(other.begin() + static_cast<std::ptrdiff_t>(below(random, other.size() + 1)), action);
      break;
    }
    case 7:
      place->micro_batch =
          static_cast<std::int32_t>(below(random, static_cast<std::size_t>(schedule.micro_batches) + 2)) - 1;
      break;
    case 8:
      place->stage = static_cast<std::int32_t>(below(random, static_cast<std::size_t>(schedule.stages()) + 2)) - 1;
      break;
    default:
      if (random() % 2 == 0)
        place->kind = static_cast<Kind>(below(random, 11));
      else
        place->with_next = !place->with_next;
  }
}

TEST(ScheduleMutations, each_runs_or_is_refused) {
  const std::vector<Schedule> right = originals();
  Random random(20231124);
  int accepted = 0, refused = 0, deadlocks = 0;
  for (int i = 0; i < 12'000; ++i) {
    Schedule schedule = right[below(random, right.size())];
    const int changes = 1 + static_cast<int>(below(random, 3));
    for (int k = 0; k < changes; ++k) change(schedule, random);
    const int outstanding = static_cast<int>(below(random, 4));
    const auto problem = find_problem(schedule, {.outstanding = outstanding});
    // A schedule that lost all its messages consists of computations only; messages are added before it is executed.
    if (!problem && !has_messages(schedule)) schedule = with_messages(schedule);
    const std::string error = Executor(schedule, outstanding, random()).run();
    if (problem) {
      ++refused;
      ASSERT_FALSE(problem->reason.empty());
      deadlocks += problem->reason.find("deadlock") == 0;
      // In about one of 100,000 changes two swapped messages cancel each other out; not with this seed.
      ASSERT_NE(error, "") << "refused, though it runs: " << text_of(*problem);
    } else {
      ++accepted;
      ASSERT_EQ(error, "") << "accepted, with " << outstanding << " outstanding: seed step " << i;
      for (int run = 0; run < 3; ++run) ASSERT_EQ(Executor(schedule, outstanding, random()).run(), "");
    }
  }
  EXPECT_GT(accepted, 1000) << "otherwise most changes test little";
  EXPECT_GT(refused, 5000);
  EXPECT_GT(deadlocks, 10);
  RecordProperty("accepted", accepted);
  RecordProperty("refused", refused);
  RecordProperty("deadlocks", deadlocks);
}

TEST(ScheduleMutations, every_original_runs_with_the_least_number_of_messages_under_way) {
  for (const Schedule& schedule : originals()) {
    const int least = least_outstanding(schedule);
    EXPECT_EQ(Executor(schedule, least, 1).run(), "") << schedule.name;
    EXPECT_EQ(find_problem(schedule, {.outstanding = least}), std::nullopt);
    if (least > 1) {
      EXPECT_EQ(Executor(schedule, least - 1, 1).run(), "deadlock") << schedule.name << " " << least;
      EXPECT_NE(find_problem(schedule, {.outstanding = least - 1}), std::nullopt);
    }
  }
}

/// Arbitrary orders of computations, chosen without regard to messages: each rank takes any computation that is ready.
TEST(ScheduleMutations, random_orders_of_computations_run_once_they_have_messages) {
  Random random(7);
  for (int i = 0; i < 300; ++i) {
    const int ranks = 1 + static_cast<int>(below(random, 4)), chunks = 1 + static_cast<int>(below(random, 3));
    const int micro_batches = 1 + static_cast<int>(below(random, 5));
    Schedule schedule{"", micro_batches, place_stages(Placement::loop, ranks, chunks), {}};
    std::shuffle(schedule.rank_of.begin(), schedule.rank_of.end(), random);
    schedule.ranks.resize(static_cast<std::size_t>(ranks));
    std::vector<Action> ready;
    for (int m = 0; m < micro_batches; ++m) ready.push_back({Kind::forward, false, 0, m});
    while (!ready.empty()) {
      const auto at = ready.begin() + static_cast<std::ptrdiff_t>(below(random, ready.size()));
      const Action action = *at;
      ready.erase(at);
      schedule.ranks[static_cast<std::size_t>(schedule.rank_of[static_cast<std::size_t>(action.stage)])].push_back(
          action);
      const Kind kind = random() % 2 == 0 ? Kind::backward : Kind::input_gradient;
      const bool is_backward = action.kind == Kind::backward || action.kind == Kind::input_gradient;
      if (action.kind == Kind::input_gradient)
        ready.push_back({Kind::weight_gradient, false, action.stage, action.micro_batch});
      if (action.kind == Kind::forward && action.stage + 1 < schedule.stages())
        ready.push_back({Kind::forward, false, action.stage + 1, action.micro_batch});
      else if (action.kind == Kind::forward)
        ready.push_back({kind, false, action.stage, action.micro_batch});
      else if (is_backward && action.stage > 0)
        ready.push_back({kind, false, action.stage - 1, action.micro_batch});
    }
    ASSERT_EQ(find_problem(schedule), std::nullopt);
    const Schedule lowered = with_messages(schedule);
    ASSERT_EQ(find_problem(lowered), std::nullopt);
    ASSERT_EQ(Executor(lowered, 0, random()).run(), "");
    ASSERT_EQ(Executor(lowered, least_outstanding(lowered), random()).run(), "");
    ASSERT_EQ(computations_of(lowered), schedule);
  }
}

}  // namespace
}  // namespace tessera::layout::schedule
