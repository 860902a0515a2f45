// hier on simulated hosts (TESSERA_HOST_ID): conformance for any placement of ranks, volumes between hosts, subgroups.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/comm/recorder.h>
#include <tessera/comm/world.h>

#include <tests/distributed/conformance.h>
#include <tests/distributed/harness.h>

#include <cstdlib>

namespace {

using namespace tessera;
using namespace tessera::testing;

// `hosts[r]` is the host of rank r.
RankOptions on_hosts(const std::string& hosts, double timeout_s = 60) {
  RankOptions options;
  options.timeout_s = timeout_s;
  options.before_init = [hosts](launch::RankEnvironment& environment, InitOptions&) {
    const char id[] = {hosts[static_cast<std::size_t>(environment.rank)], 0};
    setenv("TESSERA_HOST_ID", id, 1);
  };
  return options;
}

class Hier : public ::testing::TestWithParam<const char*> {};
// Ranks per host: 2 + 2 in order and interleaved, 1 + 3, 3 + 3, 2 + 1 + 1, uneven and mixed, 4 + 4.
INSTANTIATE_TEST_SUITE_P(Hosts, Hier,
                         ::testing::Values("AABB", "ABAB", "ABBA", "ABBB", "AAABBB", "ABCA", "BABAAB", "ABBABA",
                                           "AAAABBBB"));

TEST_P(Hier, all_operations) {
  const std::string hosts = GetParam();
  run_ranks(
      static_cast<int>(hosts.size()),
      [](comm::World& world) {
        EXPECT_EQ(world.group().backend(), "hier");
        conformance_all(world.group());
      },
      on_hosts(hosts));
}

TEST_P(Hier, sixteen_megabytes) {
  const std::string hosts = GetParam();
  if (hosts.size() > 6) GTEST_SKIP() << "large messages are tested with fewer ranks";
  run_ranks(static_cast<int>(hosts.size()), [](comm::World& world) { check_large(world.group()); }, on_hosts(hosts));
}

TEST(HierChoice, follows_the_places_of_the_ranks) {
  run_ranks(
      4,
      [](comm::World& world) {
        EXPECT_EQ(world.group().backend(), "hier");
        const Group low = world.new_group({0, 1}, "low"), across = world.new_group({1, 2}, "across");
        const Group three = world.new_group({0, 1, 3}, "three"), alone = world.new_group({2}, "alone");
        if (low) {
          EXPECT_EQ(low.backend(), "shm");
        }
        if (across) {
          EXPECT_EQ(across.backend(), "gloo");
        }
        if (three) {
          EXPECT_EQ(three.backend(), "hier");
        }
        if (alone) {
          EXPECT_EQ(alone.backend(), "local");
        }
        for (const Group& group : {low, across, three, alone}) {
          if (group) conformance_all(group);
        }
      },
      on_hosts("AABB"));
  run_ranks(3, [](comm::World& world) { EXPECT_EQ(world.group().backend(), "gloo"); }, on_hosts("ABC"));
  run_ranks(3, [](comm::World& world) { EXPECT_EQ(world.group().backend(), "shm"); }, on_hosts("AAA"));
}

// The bytes that leave the hosts, according to the record, are the theoretical minimum: see hierarchical/backend.cpp.
void check_volumes(const std::string& hosts, const std::function<void(const Group&)>& call,
                   std::int64_t expected_total) {
  const auto outcomes = run_ranks(
      static_cast<int>(hosts.size()),
      [&](comm::World& world) {
        world.group().barrier().wait();
        comm::recorder().clear();
        call(world.group());
        std::int64_t moved = 0;
        for (const auto& total : comm::recorder().totals()) moved += total.moved_bytes;
        tessera::testing::post(std::to_string(moved));
      },
      on_hosts(hosts));
  std::int64_t total = 0;
  for (const auto& outcome : outcomes) total += outcome.posted.empty() ? 0 : std::stoll(outcome.posted.front());
  EXPECT_EQ(total, expected_total) << hosts;
}

constexpr std::int64_t part = 60000;  // elements per rank; 4 ranks: 960,000 bytes in total
const auto all_reduce_once = [](const Group& group) { group.all_reduce(at::ones({part * group.size()})).wait(); };
const auto reduce_scatter_once = [](const Group& group) {
  at::Tensor mine = at::empty({part});
  group.reduce_scatter(mine, at::ones({part * group.size()})).wait();
};
const auto all_gather_once = [](const Group& group) {
  at::Tensor all = at::empty({part * group.size()});
  group.all_gather(all, at::ones({part})).wait();
};

TEST(HierVolume, across_hosts_is_the_theory) {
  const std::int64_t whole = part * 4 * 4;  // bytes of the whole tensor of 4 ranks, fp32
  for (const char* hosts : {"AABB", "ABAB", "ABBB"}) {
    check_volumes(hosts, all_reduce_once, 2 * whole);  // 2 hosts x 2 S (H-1)/H
    check_volumes(hosts, reduce_scatter_once, whole);
    check_volumes(hosts, all_gather_once, whole);
    check_volumes(hosts, [](const Group& group) { group.broadcast(at::ones({part}), 1).wait(); }, part * 4);
    check_volumes(hosts, [](const Group& group) { group.reduce(at::ones({part}), 2).wait(); }, part * 4);
  }
  // Traffic within a host does not count.
  check_volumes(
      "AABB",
      [](const Group& group) {
        at::Tensor t = at::ones({part});
        if (group.rank() == 0) group.send(t, 1).wait();
        if (group.rank() == 1) group.recv(t, 0).wait();
        if (group.rank() == 1) group.send(t, 2).wait();
        if (group.rank() == 2) group.recv(t, 1).wait();
      },
      part * 4);
}

TEST(HierFailures, a_peer_that_dies_on_another_host_ends_everyone) {
  const Stopwatch watch;
  RankOptions options = on_hosts("AABB", /*timeout_s=*/300);
  const auto outcomes = run_ranks_outcomes(
      4,
      [](comm::World& world) {
        world.group().barrier().wait();
        if (world.rank() == 3) raise(SIGKILL);
        const comm::Tag tag("step 7");
        for (int i = 0; i < 100; ++i) world.group().all_reduce(at::ones({1 << 18})).wait();
      },
      options);
  int told = 0;
  for (const int rank : {0, 1, 2})
    told += outcomes[static_cast<std::size_t>(rank)].error.find("tag 'step 7'") != std::string::npos;
  EXPECT_GE(told, 1);
  EXPECT_LT(watch.seconds(), watch.limit(15)) << "the time-out is 180 s";
}

// One rank of tests/distributed/two_hosts.sh, which runs this test in two network namespaces.
TEST(TwoHosts, rank) {
  const char* task = std::getenv("TESSERA_TWO_HOSTS");
  if (task == nullptr) GTEST_SKIP() << "run tests/distributed/two_hosts.sh";
  comm::World& world = tessera::init();
  EXPECT_EQ(world.group().backend(), "hier");
  if (std::string(task) == "conformance") {
    conformance_all(world.group());
  } else {  // 4 x 2 S (H-1)/H = 64 MB leave each host
    at::Tensor t = at::ones({4 << 20});
    for (int i = 0; i < 4; ++i) world.group().all_reduce(t).wait();
  }
  tessera::shutdown();
}

}  // namespace
