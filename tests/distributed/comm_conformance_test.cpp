// Every backend against conformance.h, in worlds of 1 to 4 processes and in subgroups; behavior when a peer dies.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include <tessera/base/file.h>
#include <tessera/comm/gloo.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/comm/recorder.h>

#include <tests/distributed/conformance.h>
#include <tests/distributed/harness.h>

#include <signal.h>
#include <chrono>
#include <thread>

#include <map>

namespace {

using namespace tessera;
using namespace tessera::testing;

// Shared memory, the default for these ranks, has its own tests (shm_test.cpp).
RankOptions over_gloo(int ranks) {
  RankOptions options;
  if (ranks > 1) options.init.backend = "gloo";
  return options;
}

class Conformance : public ::testing::TestWithParam<int> {};

TEST_P(Conformance, all_operations) {
  const int n = GetParam();
  run_ranks(
      n,
      [n](comm::World& world) {
        EXPECT_EQ(world.group().backend(), n == 1 ? "local" : "gloo");
        conformance_all(world.group());
      },
      over_gloo(n));
}

TEST_P(Conformance, sixteen_megabytes) {
  run_ranks(GetParam(), [](comm::World& world) { check_large(world.group()); }, over_gloo(GetParam()));
}

INSTANTIATE_TEST_SUITE_P(Ranks, Conformance, ::testing::Values(1, 2, 3, 4));

// A process group created by a LibTorch application.
TEST(Adopted, gloo_conforms) {
  const TemporaryFolder folder;
  run_ranks(3, [&folder](comm::World& world) {
    const auto store = c10::make_intrusive<c10d::FileStore>(folder.path() + "/store", world.size());
    const auto timeout = patience(std::chrono::milliseconds(60'000));
    auto theirs = c10::make_intrusive<c10d::ProcessGroup>(world.rank(), world.size());
    theirs->setBackend(
        c10::kCPU, c10d::ProcessGroup::BackendType::GLOO,
        comm::make_gloo(store, world.rank(), world.size(), {.name = "", .address = "127.0.0.1"}, timeout, timeout));
    const Group group = Group::adopt(theirs, "theirs");
    EXPECT_EQ(group.backend(), "gloo");
    conformance_all(group);
    world.group().barrier().wait();
  });
}

TEST(Subgroups, of_a_mesh) {
  using layout::Axis;
  run_ranks(4, [](comm::World& world) {
    const layout::Mesh mesh = layout::parse_mesh("dp=2,tp=2");
    const Group tp = comm::mesh_group(world, mesh, std::array{Axis::tp});
    const Group dp = comm::mesh_group(world, mesh, std::array{Axis::dp_replicate, Axis::dp_shard});
    const Group pp = comm::mesh_group(world, mesh, std::array{Axis::pp});
    const Group all = comm::mesh_group(world, mesh, std::array{Axis::dp_shard, Axis::tp});
    EXPECT_EQ(tp.name(), world.rank() < 2 ? "tp 0" : "tp 2");
    EXPECT_EQ(dp.name(), concat("dp_shard ", world.rank() % 2)) << "an axis of one rank has no name";
    EXPECT_EQ(pp.size(), 1);
    EXPECT_EQ(all.name(), "dp_shard-tp 0");
    EXPECT_EQ(all.backend(), world.group().backend());
    conformance_all(tp);
    conformance_all(all);
    conformance_all(dp);
    at::Tensor sum = at::full({1}, static_cast<double>(world.rank()), at::kDouble);
    tp.all_reduce(sum).wait();
    EXPECT_EQ(sum.item<double>(), world.rank() < 2 ? 1 : 5);
    dp.all_reduce(sum).wait();
    EXPECT_EQ(sum.item<double>(), 6);
    EXPECT_THROW(comm::mesh_group(world, layout::parse_mesh("dp=2"), std::array{Axis::tp}), InputError);
  });
}

// The recorder shows which groups were created: groups have numbers, and connections are made once.
TEST(MeshGroups, are_made_once_and_carry_their_axis) {
  using layout::Axis;
  run_ranks(4, [](comm::World& world) {
    const comm::MeshGroups groups(world, layout::parse_mesh("dp=2,tp=2"));
    const comm::MeshGroups again(world, layout::parse_mesh("tp=2,dp=2"));
    const auto number_of = [](const Group& group) {
      group.barrier().wait();
      return comm::recorder().last(1).at(0).group_id;
    };
    const Group tp = groups.of(Axis::tp);
    const auto first = number_of(tp);
    EXPECT_EQ(number_of(groups.over({Axis::tp, Axis::cp})), first) << "cp has one rank";
    EXPECT_EQ(number_of(again.of(Axis::tp)), first) << "an equal mesh";
    EXPECT_EQ(number_of(groups.over({Axis::tp, Axis::dp_shard})), number_of(groups.over({Axis::dp_shard, Axis::tp})));
    EXPECT_EQ(groups.of(Axis::cp).size(), 1);
    EXPECT_EQ(groups.of(Axis::cp).backend(), "local");

    // Ranks may request existing groups in any order, and groups of one rank independently of the others.
    if (world.rank() == 0) static_cast<void>(groups.of(Axis::cp));
    if (world.rank() % 2 == 0) static_cast<void>(groups.of(Axis::tp));
    static_cast<void>(groups.of(Axis::dp_shard));

    const comm::MeshGroups alone(world, layout::parse_mesh("tp=4"));
    const Group all = alone.of(Axis::tp);
    EXPECT_EQ(all.name(), "tp 0");
    EXPECT_NE(number_of(all), number_of(world.group()));
    comm::recorder().clear();
    const comm::Work slow = all.all_reduce(at::ones({100000}));  // one operation in flight under each name
    world.group().all_reduce(at::ones({8})).wait();
    comm::Work(slow).wait();
    std::map<std::string, std::int64_t> bytes;
    for (const comm::OpTotals& row : comm::recorder().totals()) bytes[row.group] += row.payload_bytes;
    EXPECT_EQ(bytes, (std::map<std::string, std::int64_t>{{"tp 0", 400000}, {"world", 32}}));
  });
}

TEST(MeshGroups, are_asked_for_in_one_order) {
  using layout::Axis;
  RankOptions options;
  options.init.timeout_seconds = patience(2);
  options.end_after_failure = false;
  const auto outcomes = tessera::testing::run_ranks_outcomes(
      4,
      [](comm::World& world) {
        const comm::MeshGroups groups(world, layout::parse_mesh("dp=2,tp=2"));
        static_cast<void>(world.rank() == 3 ? groups.of(Axis::dp_shard) : groups.of(Axis::tp));
      },
      options);
  for (const int r : {2, 3}) {
    EXPECT_NE(outcomes[static_cast<std::size_t>(r)].error.find("in the same order"), std::string::npos)
        << outcomes[static_cast<std::size_t>(r)].error;
  }
}

// Ranks use the same connections under two group names: the error contains both names.
TEST(MeshGroups, a_mismatch_between_two_names_of_the_same_ranks) {
  const auto outcomes = tessera::testing::run_ranks_outcomes(2, [](comm::World& world) {
    const Group tp = comm::MeshGroups(world, layout::parse_mesh("tp=2")).of(layout::Axis::tp);
    (world.rank() == 0 ? tp : world.group()).all_reduce(at::ones({8})).wait();
  });
  for (const auto& outcome : outcomes) {
    EXPECT_NE(outcome.error.find("group 'tp 0'"), std::string::npos) << outcome.error;
    EXPECT_NE(outcome.error.find("group 'world'"), std::string::npos) << outcome.error;
  }
}

// Two names for the same connections, used in different orders by the ranks: a transport that matches by order would
// swap their numbers.
TEST(MeshGroups, two_names_in_another_order) {
  for (const char* backend : {"gloo", "shm"}) {
    RankOptions options;
    options.init.backend = backend;
    const auto outcomes = tessera::testing::run_ranks_outcomes(
        2,
        [](comm::World& world) {
          const Group tp = comm::MeshGroups(world, layout::parse_mesh("tp=2")).of(layout::Axis::tp);
          const Group& all = world.group();
          at::Tensor a = at::ones({8}), b = at::full({8}, 2.0f);
          (world.rank() == 0 ? all : tp).all_reduce(world.rank() == 0 ? a : b).wait();
          (world.rank() == 0 ? tp : all).all_reduce(world.rank() == 0 ? b : a).wait();
          for (int i = 0; i < 20; ++i) {  // the next matching call reveals an earlier mismatch
            all.barrier().wait();
            tp.barrier().wait();
            std::this_thread::sleep_for(std::chrono::milliseconds(100));
          }
        },
        options);
    EXPECT_TRUE(std::ranges::any_of(outcomes,
                                    [](const auto& one) {
                                      return one.error.find("'tp 0'") != std::string::npos ||
                                             one.error.find("'world'") != std::string::npos;
                                    }))
        << backend << ": nobody has noticed";
  }
}

TEST(Subgroups, halves_and_others_at_the_same_time) {
  run_ranks(4, [](comm::World& world) {
    const int rank = world.rank();
    Group low = world.new_group({0, 1}, "low"), high = world.new_group({2, 3}, "high");
    Group even = world.new_group({0, 2}, "even"), odd = world.new_group({1, 3}, "odd");
    Group three = world.new_group({0, 2, 3}, "three"), alone = world.new_group({1}, "alone");
    EXPECT_EQ(static_cast<bool>(low), rank < 2);
    EXPECT_EQ(static_cast<bool>(alone), rank == 1);
    EXPECT_THROW(void(three.size() + (rank == 1 ? 0 : throw InputError("member"))), InputError);
    conformance_all(rank < 2 ? low : high);
    conformance_all(rank % 2 == 0 ? even : odd);
    if (three) conformance_all(three);
    if (alone) {
      EXPECT_EQ(alone.backend(), "local");
      conformance_all(alone);
    }
    // Two groups in flight at once, started in different orders by the two halves.
    at::Tensor a = at::full({1000}, rank + 1.0f), b = a.clone();
    Group first = rank < 2 ? low : high, second = rank % 2 == 0 ? even : odd;
    Work wa = first.all_reduce(a), wb = second.all_reduce(b);
    wb.wait();
    wa.wait();
    EXPECT_EQ(a[0].item<float>(), rank < 2 ? 3 : 7);
    EXPECT_EQ(b[0].item<float>(), rank % 2 == 0 ? 4 : 6);
  });
}

TEST(Subgroups, lists_that_differ_are_an_error_not_a_hang) {
  const auto outcomes = run_ranks_outcomes(3, [](comm::World& world) {
    world.new_group(world.rank() == 1 ? std::vector<int>{1, 2} : std::vector<int>{0, 1}, "pair");
  });
  // The first rank to detect it exits, and rank 0 takes the store with it: other ranks may see only that.
  int told = 0;
  for (const auto& outcome : outcomes) {
    const bool both =
        outcome.error.find("pair {1,2}") != std::string::npos && outcome.error.find("pair {0,1}") != std::string::npos;
    const bool lost = outcome.error.find("lost the store") != std::string::npos ||
                      outcome.error.find("could not be connected") != std::string::npos;  // still in init()
    told += both;
    EXPECT_TRUE(both || lost || outcome.error.empty()) << outcome.error;
  }
  EXPECT_GE(told, 1);
}

TEST(Subgroups, a_member_that_does_not_come_is_named) {
  RankOptions options;
  options.init.timeout_seconds = patience(1);  // also limits the rendezvous
  const auto outcomes = run_ranks_outcomes(
      3,
      [](comm::World& world) {
        if (world.rank() != 2) world.new_group({0, 1, 2}, "all");
      },
      options);
  int told = 0;
  for (const int rank : {0, 1}) {
    const std::string& text = outcomes[static_cast<std::size_t>(rank)].error;
    const bool named = text.find("rank 2 did not call") != std::string::npos;
    told += named;
    EXPECT_TRUE(named || text.find("lost the store") != std::string::npos) << text;
  }
  EXPECT_GE(told, 1);
}

TEST(Subgroups, bad_lists_are_rejected) {
  run_ranks(2, [](comm::World& world) {
    for (const std::vector<int>& ranks : {std::vector<int>{}, {1, 0}, {0, 0}, {0, 2}, {-1, 0}}) {
      EXPECT_THROW(world.new_group(ranks, "bad"), InputError);
    }
  });
}

// The recorded volumes equal the theoretical ones, and collectives have equal numbers and fingerprints on every rank.
TEST(Record, volumes_sequence_and_tags) {
  const auto outcomes = run_ranks(4, [](comm::World& world) {
    const Group& group = world.group();
    comm::recorder().clear();
    {
      const comm::Tag tag("bucket 3");
      group.all_reduce(at::ones({1000})).wait();
    }
    at::Tensor whole = at::ones({4000}), part = at::ones({1000});
    if (world.rank() == 0) group.send(part, 1).wait();
    if (world.rank() == 1) group.recv(part, 0).wait();
    group.all_gather(whole, part).wait();
    group.reduce_scatter(part, whole).wait();
    const auto entries = comm::recorder().last();
    std::string text;
    for (const auto& e : entries) {
      EXPECT_EQ(e.status, comm::Status::done);
      EXPECT_GE(e.end_ns, e.start_ns);
      if (e.op == comm::Op::send || e.op == comm::Op::recv) continue;
      text += concat(comm::op_name(e.op), e.sequence, ":", e.fingerprint, ":", e.wire_bytes, " ");
    }
    EXPECT_STREQ(entries.front().tag, "bucket 3");
    EXPECT_STREQ(entries.back().tag, "");
    tessera::testing::post(text);
    for (const auto& total : comm::recorder().totals()) {
      if (total.op == comm::Op::all_reduce) {
        EXPECT_EQ(total.wire_bytes, 6000);  // 2 x 3/4 x 4000
      }
      if (total.op == comm::Op::all_gather || total.op == comm::Op::reduce_scatter) {
        EXPECT_EQ(total.wire_bytes, 12000);
      }
    }
  });
  for (const auto& outcome : outcomes) EXPECT_EQ(outcome.posted, outcomes[0].posted);
}

void expect_names_the_collective(const RankOutcome& outcome) {
  for (const char* word : {"all_reduce #", "group 'world'", "tag 'step 7'", "1048576 x float32", "Last collectives"}) {
    EXPECT_NE(outcome.error.find(word), std::string::npos) << "no '" << word << "' in: " << outcome.error;
  }
}

TEST(Failures, a_peer_that_dies_fails_the_collective_at_once) {
  RankOptions options;
  options.timeout_s = 300;
  const Stopwatch watch;
  const auto outcomes = run_ranks_outcomes(
      4,
      [](comm::World& world) {
        world.group().barrier().wait();
        if (world.rank() == 2) raise(SIGKILL);
        const comm::Tag tag("step 7");
        for (int i = 0; i < 100; ++i) world.group().all_reduce(at::ones({1 << 20})).wait();
      },
      options);
  for (const int rank : {0, 1, 3}) expect_names_the_collective(outcomes[static_cast<std::size_t>(rank)]);
  EXPECT_LT(watch.seconds(), watch.limit(15)) << "the time-out is 180 s";
}

TEST(Failures, a_peer_that_hangs_fails_the_collective_at_the_timeout) {
  RankOptions options;
  options.timeout_s = 300;
  const double timeout = options.init.timeout_seconds = patience(1);
  options.end_after_failure = false;
  const Stopwatch watch;
  const auto outcomes = run_ranks_outcomes(
      3,
      [timeout](comm::World& world) {
        world.group().barrier().wait();
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(2 * timeout));
        const comm::Tag tag("step 7");
        world.group().all_reduce(at::ones({1 << 20})).wait();
      },
      options);
  for (const auto& outcome : outcomes) expect_names_the_collective(outcome);
  EXPECT_LT(watch.seconds() - 2 * timeout, watch.limit(15)) << "all are killed after 300 s";
}

// Every wait for a failed work throws its error.
TEST(Failures, waiting_again_throws_again) {
  RankOptions options;
  options.end_after_failure = false;
  const double timeout = options.init.timeout_seconds = patience(1);
  const auto outcomes = run_ranks_outcomes(
      2,
      [timeout](comm::World& world) {
        if (world.rank() == 1) std::this_thread::sleep_for(std::chrono::duration<double>(2 * timeout));
        if (world.rank() == 1) return;
        at::Tensor t = at::ones({4});
        Work work = world.group().recv(t, 1);
        EXPECT_THROW(work.wait(), Error);
        EXPECT_THROW(work.wait(), Error);
        EXPECT_TRUE(work.done());
        EXPECT_TRUE(comm::recorder().any_failed());
      },
      options);
  EXPECT_EQ(outcomes[0].error, "");
  EXPECT_TRUE(outcomes[0].failures.empty());
}

}  // namespace
