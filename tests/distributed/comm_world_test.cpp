// Joining and leaving, with real processes.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/comm/recorder.h>

#include <tests/distributed/harness.h>
#include <tests/stopwatch.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace {

using namespace tessera;
using tessera::testing::patience;
using tessera::testing::RankOptions;
using tessera::testing::run_ranks;
using tessera::testing::run_ranks_outcomes;

TEST(WorldOfMany, knows_its_places) {
  run_ranks(3, [](comm::World& world) {
    EXPECT_EQ(world.size(), 3);
    EXPECT_EQ(world.local_size(), 3);
    EXPECT_EQ(world.rank(), world.local_rank());
    EXPECT_EQ(world.group().rank(), world.rank());
    EXPECT_EQ(world.group().size(), 3);
    EXPECT_EQ(world.group().name(), "world");
    EXPECT_TRUE(world.device().is_cpu());
    EXPECT_EQ(&world, &tessera::world());
  });
}

TEST(WorldOfMany, a_rank_that_never_joins_is_named_by_the_others) {
  RankOptions options;
  options.init.timeout_seconds = patience(2);
  options.before_init = [](launch::RankEnvironment& environment, InitOptions&) {
    if (environment.rank == 1) _exit(7);
  };
  const auto outcomes = run_ranks_outcomes(3, [](comm::World&) {}, options);
  EXPECT_EQ(outcomes[1].error, "exit status 7");
  EXPECT_NE(outcomes[0].error.find("2 of 3 ranks joined within "), std::string::npos) << outcomes[0].error;
  EXPECT_NE(outcomes[0].error.find("; missing: rank 1"), std::string::npos) << outcomes[0].error;
  const std::string& other = outcomes[2].error;  // reported by rank 0, unless rank 0 and its store ended first
  EXPECT_TRUE(other.find("missing: rank 1") != std::string::npos ||
              other.find("lost the rendezvous") != std::string::npos)
      << other;
}

TEST(WorldOfMany, local_is_for_one_rank) {
  RankOptions options;
  options.before_init = [](launch::RankEnvironment&, InitOptions&) { setenv("TESSERA_BACKEND", "local", 1); };
  for (const auto& outcome : run_ranks_outcomes(2, [](comm::World&) {}, options)) {
    EXPECT_NE(outcome.error.find("TESSERA_BACKEND = 'local' is for one rank; this job has 2"), std::string::npos)
        << outcome.error;
  }
}

// Slower ranks still compute when the first ones leave; handles that outlive the world report it.
TEST(WorldOfMany, leaves_together_and_closes_its_groups) {
  run_ranks(3, [](comm::World& world) {
    const comm::Group all = world.group(), pair = world.new_group({0, 2}, "pair");
    std::this_thread::sleep_for(std::chrono::milliseconds(60 * world.rank()));
    at::Tensor t = at::ones({100});
    all.all_reduce(t).wait();
    const tessera::testing::Stopwatch watch;
    if (world.rank() == 2) std::this_thread::sleep_for(std::chrono::milliseconds(200));
    shutdown();
    if (all.rank() == 0) {
      EXPECT_GT(watch.seconds(), 0.15);
    }
    EXPECT_LT(watch.seconds(), watch.limit(4));
    try {
      all.all_reduce(t).wait();
      ADD_FAILURE() << "a closed group was usable";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("closed by shutdown()"), std::string::npos) << error.what();
    }
    EXPECT_THROW(tessera::world(), Error);
  });
}

// After a failed collective, shutdown() must not wait for the dead rank's peers.
TEST(WorldOfMany, leaves_at_once_after_a_failure) {
  RankOptions options;
  options.timeout_s = 300;
  options.end_after_failure = false;
  const auto outcomes = run_ranks_outcomes(
      2,
      [](comm::World& world) {
        at::Tensor t = at::ones({100});
        world.group().barrier().wait();
        if (world.rank() == 1) _exit(0);
        // A collective that the failed rank had begun may still complete; the next one cannot.
        const auto two = [&] {
          for (int i = 0; i < 2; ++i) world.group().all_reduce(t).wait();
        };
        EXPECT_THROW(two(), Error);
        const tessera::testing::Stopwatch watch;
        shutdown();
        EXPECT_LT(watch.seconds(), watch.limit(1)) << "the time-out is 180 s";
      },
      options);
  EXPECT_EQ(outcomes[0].error, "");
  for (const auto& failure : outcomes[0].failures) ADD_FAILURE() << failure.text;
}

TEST(WorldOfMany, threads_per_rank_follow_the_variable) {
  RankOptions options;
  options.before_init = [](launch::RankEnvironment&, InitOptions&) { setenv("OMP_NUM_THREADS", "2", 1); };
  run_ranks(
      2,
      [](comm::World&) {
        EXPECT_EQ(at::get_num_threads(), 2);
        const at::Tensor big = at::ones({1 << 20});
        EXPECT_EQ(big.sum().item<float>(), 1 << 20);  // uses its thread pool, created after the fork
      },
      options);
}

}  // namespace
