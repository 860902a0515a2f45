// Mismatched ranks over shared memory: which ranks are named, and which are not (mismatch_kinds.h lists the kinds).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tests/distributed/harness.h>
#include <tests/stopwatch.h>

#include <chrono>
#include <thread>

namespace {

using namespace tessera;
using comm::Group;
using tessera::testing::post;
using tessera::testing::RankOptions;
using tessera::testing::run_ranks_outcomes;

at::Tensor ones(std::int64_t n) { return at::ones({n}); }

// One of three ranks calls something else: the other two name it.
TEST(ShmMismatch, the_odd_one_is_named_by_all) {
  RankOptions options;
  options.end_after_failure = false;
  const auto outcomes = run_ranks_outcomes(
      4,
      [](comm::World& world) {
        world.group().barrier().wait();
        try {
          if (world.rank() == 2) {
            world.group().broadcast(ones(8), 1).wait();
          } else {
            world.group().all_reduce(ones(8)).wait();
          }
          post("nothing");
        } catch (const Error& error) {
          post(error.what());
        }
      },
      options);
  for (const auto& outcome : outcomes) {
    ASSERT_EQ(outcome.posted.size(), 1u) << outcome.error;
    EXPECT_NE(outcome.posted[0].find("rank 2"), std::string::npos) << outcome.posted[0];
    EXPECT_NE(outcome.posted[0].find("broadcast"), std::string::npos) << outcome.posted[0];
  }
}

// Ranks that wait for each other in a cycle of three groups: no pair of them mismatches, but together they do.
TEST(ShmMismatch, a_ring_of_three_is_a_deadlock_that_is_named) {
  RankOptions options;
  options.end_after_failure = false;
  const auto outcomes = run_ranks_outcomes(
      3,
      [](comm::World& world) {
        Group pairs[] = {world.new_group({0, 1}, "zero-one"), world.new_group({1, 2}, "one-two"),
                         world.new_group({0, 2}, "zero-two")};
        world.group().barrier().wait();
        const tessera::testing::Stopwatch watch;
        try {
          pairs[world.rank()].barrier().wait();  // 0 waits for 1, 1 for 2, 2 for 0
          post("nothing");
        } catch (const Error& error) {
          post(error.what());
        }
        EXPECT_LT(watch.seconds(), watch.limit(2.5));
      },
      options);
  for (const auto& outcome : outcomes) {
    ASSERT_EQ(outcome.posted.size(), 1u) << outcome.error;
    EXPECT_NE(outcome.posted[0].find("wait for each other"), std::string::npos) << outcome.posted[0];
  }
}

// No rank is accused that is merely late, or whose other thread has yet to arrive.
TEST(ShmMismatch, slow_ranks_and_crossed_asynchronous_groups_are_fine) {
  tessera::testing::run_ranks(2, [](comm::World& world) {
    Group a = world.new_group({0, 1}, "a"), b = world.new_group({0, 1}, "b");
    at::Tensor x = ones(300000), y = ones(300000);
    comm::Work first = (world.rank() == 0 ? a : b).all_reduce(world.rank() == 0 ? x : y);
    std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    comm::Work second = (world.rank() == 0 ? b : a).all_reduce(world.rank() == 0 ? y : x);
    second.wait();
    first.wait();
    if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::milliseconds(1200));
    world.group().barrier().wait();
    EXPECT_EQ(x[7].item<float>(), 2);
    EXPECT_EQ(y[299999].item<float>(), 2);
  });
}

}  // namespace
