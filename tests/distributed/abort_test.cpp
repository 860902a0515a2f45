// A rank that continues after a failed operation leaves no other rank waiting in that group.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tests/distributed/harness.h>
#include <tests/stopwatch.h>

#include <chrono>
#include <thread>

namespace {

using namespace tessera;
using namespace tessera::testing;

class Abort : public ::testing::TestWithParam<const char*> {};

// Rank 2 waits for rank 0, which fails but stays alive; meanwhile, rank 1 does something else.
TEST_P(Abort, ends_the_waits_of_the_others) {
  const bool gloo = std::string(GetParam()) == "gloo";
  RankOptions options;
  options.timeout_s = 300;
  options.init.backend = GetParam();
  options.end_after_failure = false;
  const double timeout = patience(0.5);  // also limits the rendezvous
  options.before_init = [&](launch::RankEnvironment& environment, InitOptions& init) {
    if (environment.rank == 0 && !gloo) init.timeout_seconds = timeout;
  };
  int ended[2];  // rank 2 signals through this pipe; the others stay until then
  ASSERT_EQ(pipe(ended), 0);
  const Stopwatch whole;
  const auto outcomes = run_ranks_outcomes(
      3,
      [&](comm::World& world) {
        at::Tensor tensor = at::ones({1000});
        world.group().barrier().wait();
        const Stopwatch watch;
        std::string error;
        try {
          if (world.rank() == 0 && gloo) {
            std::this_thread::sleep_for(std::chrono::milliseconds(200));
            world.group().send(tensor, 1, 1 << 30).wait();  // fails: the tag is reserved
          } else if (world.rank() != 1) {
            world.group().recv(tensor, world.rank() == 0 ? 1 : 0).wait();  // rank 0: until its timeout
          }
        } catch (const Error& e) {
          error = e.what();
        }
        post(error);
        post(std::to_string(watch.seconds()));
        if (world.rank() == 2) {
          EXPECT_EQ(write(ended[1], "2", 2), 2);
        } else {
          pollfd end{ended[0], POLLIN, 0};
          poll(&end, 1, 120'000);
        }
        if (world.rank() == 0) {
          EXPECT_THROW(world.group().barrier().wait(), Error) << "the group goes on";
        }
      },
      options);
  close(ended[0]);
  close(ended[1]);
  for (const RankOutcome& outcome : outcomes) {
    ASSERT_EQ(outcome.posted.size(), 2u) << outcome.error;
    EXPECT_TRUE(outcome.failures.empty()) << outcome.failures.front().text;
  }
  EXPECT_NE(outcomes[0].posted[0].find(gloo ? "reserved" : "timeout"), std::string::npos) << outcomes[0].posted[0];
  EXPECT_EQ(outcomes[1].posted[0], "");
  EXPECT_NE(outcomes[2].posted[0], "");
  for (const char* word : {"rank 0", gloo ? "closed" : "timeout"}) {
    EXPECT_NE(outcomes[2].posted[0].find(word), std::string::npos) << word << " is not in " << outcomes[2].posted[0];
  }
  // The rank's own timeout is 180 s, and rank 0 stays for 120 s. Over sockets both sides first compare their records
  // for at most a second.
  EXPECT_LT(std::stod(outcomes[2].posted[1]) - std::stod(outcomes[0].posted[1]), whole.limit(3))
      << outcomes[2].posted[0];
  std::printf("  %s: rank 0 failed after %.2f s, rank 2 ended after %.2f s\n", GetParam(),
              std::stod(outcomes[0].posted[1]), std::stod(outcomes[2].posted[1]));
}

INSTANTIATE_TEST_SUITE_P(Backends, Abort, ::testing::Values("shm", "gloo"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
