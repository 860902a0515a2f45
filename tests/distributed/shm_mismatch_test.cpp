// Ranks that do not do the same: every kind is told within a second, on both sides, with both signatures.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/comm/recorder.h>

#include <tests/distributed/harness.h>

#include <chrono>
#include <functional>
#include <thread>

namespace {

using namespace tessera;
using comm::Group;
using comm::Reduction;
using comm::Tag;
using tessera::testing::post;
using tessera::testing::RankOptions;
using tessera::testing::run_ranks_outcomes;

struct Groups {
  Group world, again;
};
using Body = std::function<void(const Groups&)>;

at::Tensor ones(std::int64_t n, at::ScalarType dtype = at::kFloat) { return at::ones({n}, dtype); }

struct Kind {
  const char* name;
  std::vector<Body> ranks;         // what each does
  std::vector<const char*> words;  // in the error of each
};

std::vector<Kind> kinds() {
  const Body sum = [](const Groups& g) { g.world.all_reduce(ones(64)).wait(); };
  const auto reduce_of = [](std::int64_t n, at::ScalarType dtype, Reduction op) {
    return [=](const Groups& g) { g.world.all_reduce(ones(n, dtype), op).wait(); };
  };
  const auto broadcast_from = [](int root) {
    return [=](const Groups& g) { g.world.broadcast(ones(64), root).wait(); };
  };
  const auto gather_of = [](std::int64_t n) {
    return [=](const Groups& g) { g.world.all_gather(ones(n * g.world.size()), ones(n)).wait(); };
  };
  const auto receive = [](std::int64_t n, at::ScalarType dtype) {
    return [=](const Groups& g) { g.world.recv(ones(n, dtype), 0, 3).wait(); };
  };
  const Body send = [](const Groups& g) { g.world.send(ones(64), 1, 3).wait(); };
  return {
      {"operation", {sum, broadcast_from(0)}, {"all_reduce", "broadcast"}},
      {"dtype",
       {reduce_of(64, at::kFloat, Reduction::sum), reduce_of(64, at::kBFloat16, Reduction::sum)},
       {"float32", "bfloat16"}},
      {"numel",
       {reduce_of(64, at::kFloat, Reduction::sum), reduce_of(65, at::kFloat, Reduction::sum)},
       {"64 x float32", "65 x float32"}},
      {"numel of large ones",
       {reduce_of(1 << 20, at::kFloat, Reduction::sum), reduce_of((1 << 20) + 8, at::kFloat, Reduction::sum)},
       {"1048576 x float32", "1048584 x float32"}},
      {"reduction",
       {reduce_of(64, at::kFloat, Reduction::sum), reduce_of(64, at::kFloat, Reduction::max)},
       {"sum", "max"}},
      {"root", {broadcast_from(0), broadcast_from(1)}, {"0", "1", "broadcast"}},
      {"order",
       {[=](const Groups& g) { sum(g), gather_of(32)(g); }, [=](const Groups& g) { gather_of(32)(g), sum(g); }},
       {"all_reduce", "all_gather"}},
      {"a call too few",
       {[=](const Groups& g) { sum(g), gather_of(32)(g), sum(g); }, [=](const Groups& g) { sum(g), sum(g); }},
       {"all_reduce", "all_gather"}},
      {"a call too many",
       {[=](const Groups& g) { sum(g), sum(g); }, [=](const Groups& g) { sum(g), g.world.barrier().wait(), sum(g); }},
       {"all_reduce", "barrier"}},
      {"another group",
       {sum, [=](const Groups& g) { g.again.all_reduce(ones(64)).wait(); }},
       {"group 'world'", "group 'again'"}},
      {"splits",
       {[](const Groups& g) { g.world.all_to_all(ones(6), ones(6), {2, 4}, {2, 4}).wait(); },
        [](const Groups& g) { g.world.all_to_all(ones(5), ones(5), {3, 2}, {3, 2}).wait(); }},
       {"all_to_all"}},
      {"parts of a scatter",
       {[](const Groups& g) { g.world.scatter(ones(4), ones(8), 0).wait(); },
        [](const Groups& g) { g.world.scatter(ones(5), at::Tensor(), 0).wait(); }},
       {"scatter", "8 x float32", "5 x float32"}},
      {"an empty tensor on one side",
       {[](const Groups& g) { g.world.all_reduce(ones(0)).wait(), g.world.all_reduce(ones(64)).wait(); }, sum},
       {"all_reduce"}},
      {"size of a message", {send, receive(65, at::kFloat)}, {"send", "64 x float32"}},
      {"dtype of a message", {send, receive(64, at::kInt)}, {"send", "64 x float32"}},
      {"a message against a collective", {sum, receive(64, at::kFloat)}, {"all_reduce", "recv"}},
      {"two that both receive",
       {[](const Groups& g) { g.world.recv(ones(64), 1, 3).wait(); }, receive(64, at::kFloat)},
       {"recv"}},
  };
}

TEST(ShmMismatch, every_kind_is_named_on_both_sides_within_a_second) {
  for (const Kind& kind : kinds()) {
    RankOptions options;
    options.end_after_failure = false;
    options.timeout_s = 20;
    const auto outcomes = run_ranks_outcomes(
        2,
        [&](comm::World& world) {
          const Groups groups{world.group(), world.new_group({0, 1}, "again")};
          ASSERT_EQ(world.group().backend(), "shm");
          world.group().barrier().wait();
          const auto begin = std::chrono::steady_clock::now();
          const Tag tag(world.rank() == 0 ? "layer zero" : "layer one");
          try {
            kind.ranks[static_cast<std::size_t>(world.rank())](groups);
            // One side may get through alone (a root that only sends); it learns of it at its next collective.
            world.group().barrier().wait();
            post("nothing was noticed");
          } catch (const Error& error) {
            post(error.what());
          }
          const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
          post(std::to_string(took.count()));
        },
        options);
    for (std::size_t rank = 0; rank < 2; ++rank) {
      const auto& outcome = outcomes[rank];
      SCOPED_TRACE(concat(kind.name, ", rank ", rank, " ", outcome.error));
      ASSERT_EQ(outcome.posted.size(), 2u);
      const std::string& text = outcome.posted[0];
      for (const char* word : kind.words) EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
      for (const char* word : {"rank 0", "rank 1", "layer zero", "layer one"}) {
        EXPECT_NE(text.find(word), std::string::npos) << word << " is not in: " << text;
      }
      EXPECT_LT(std::stod(outcome.posted[1]), 1.0) << text;
    }
  }
}

// Three ranks, one of which goes astray: the other two name it.
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

// Ranks that wait for each other in a ring of three groups: no pair of them differs, all of them do.
TEST(ShmMismatch, a_ring_of_three_is_a_deadlock_that_is_named) {
  RankOptions options;
  options.end_after_failure = false;
  const auto outcomes = run_ranks_outcomes(
      3,
      [](comm::World& world) {
        Group pairs[] = {world.new_group({0, 1}, "zero-one"), world.new_group({1, 2}, "one-two"),
                         world.new_group({0, 2}, "zero-two")};
        world.group().barrier().wait();
        const auto begin = std::chrono::steady_clock::now();
        try {
          pairs[world.rank()].barrier().wait();  // 0 waits for 1, 1 for 2, 2 for 0
          post("nothing");
        } catch (const Error& error) {
          post(error.what());
        }
        EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(2500));
      },
      options);
  for (const auto& outcome : outcomes) {
    ASSERT_EQ(outcome.posted.size(), 1u) << outcome.error;
    EXPECT_NE(outcome.posted[0].find("wait for each other"), std::string::npos) << outcome.posted[0];
  }
}

// Nobody is accused who is merely late, or whose other thread is still to come.
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
