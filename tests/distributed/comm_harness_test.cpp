// The harness itself: failures of a rank must reach the parent.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tests/distributed/harness.h>

#include <signal.h>
#include <sys/types.h>

#include <cerrno>
#include <chrono>

namespace {

using namespace tessera;
using tessera::testing::post;
using tessera::testing::RankOptions;
using tessera::testing::run_ranks;
using tessera::testing::run_ranks_outcomes;
using tessera::testing::Stopwatch;

TEST(Harness, ranks_see_each_other) {
  for (const int n : {1, 2, 4}) {
    const auto outcomes = run_ranks(n, [n](comm::World& world) {
      EXPECT_EQ(world.size(), n);
      at::Tensor t = at::full({3}, world.rank() + 1.0f);
      world.group().all_reduce(t).wait();
      EXPECT_EQ(t[2].item<float>(), static_cast<float>(n * (n + 1) / 2));
      post(std::to_string(world.rank()));
    });
    for (int rank = 0; rank < n; ++rank) {
      const auto& outcome = outcomes[static_cast<std::size_t>(rank)];
      EXPECT_TRUE(outcome.ok);
      EXPECT_EQ(outcome.posted, std::vector<std::string>{std::to_string(rank)});
    }
  }
}

TEST(Harness, an_exception_names_its_rank) {
  const auto outcomes = run_ranks_outcomes(3, [](comm::World& world) {
    world.group().barrier().wait();  // otherwise the others may still be connecting when rank 1 exits
    if (world.rank() == 1) throw Error("broken on purpose");
  });
  EXPECT_TRUE(outcomes[1].error == "broken on purpose") << outcomes[1].error;
  EXPECT_FALSE(outcomes[1].ok);
  EXPECT_EQ(outcomes[0].error, "");
}

TEST(Harness, a_failed_expectation_keeps_its_place) {
  const auto outcomes = run_ranks_outcomes(2, [](comm::World& world) { EXPECT_EQ(world.rank(), 0); });
  EXPECT_TRUE(outcomes[0].ok);
  EXPECT_FALSE(outcomes[1].ok);
  ASSERT_EQ(outcomes[1].failures.size(), 1u);
  EXPECT_NE(outcomes[1].failures[0].file.find("comm_harness_test.cpp"), std::string::npos);
  EXPECT_GT(outcomes[1].failures[0].line, 0);
}

TEST(Harness, a_crash_is_told_by_its_signal) {
  const auto outcomes = run_ranks_outcomes(2, [](comm::World& world) {
    world.group().barrier().wait();
    if (world.rank() == 1) raise(SIGKILL);
  });
  EXPECT_NE(outcomes[1].error.find("signal 9"), std::string::npos) << outcomes[1].error;
}

TEST(Harness, a_hanging_rank_is_killed_and_no_orphan_stays) {
  RankOptions options;
  options.timeout_s = 1.5;
  const Stopwatch watch;
  const auto outcomes = run_ranks_outcomes(
      2,
      [](comm::World& world) {
        post(std::to_string(getpid()));
        while (world.rank() == 1) pause();
      },
      options);
  EXPECT_LT(watch.seconds(), watch.limit(10));
  EXPECT_TRUE(outcomes[1].killed_by_harness);
  for (const auto& outcome : outcomes) {
    ASSERT_EQ(outcome.posted.size(), 1u);
    EXPECT_EQ(kill(static_cast<pid_t>(std::stol(outcome.posted[0])), 0), -1);
    EXPECT_EQ(errno, ESRCH);
  }
}

}  // namespace
