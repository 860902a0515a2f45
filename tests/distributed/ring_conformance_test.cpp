// Every algorithm of comm/ring over Gloo's messages against conformance.h, regardless of the choice in choice.cpp.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <tessera/base/file.h>
#include <tessera/comm/c10d/c10d_backend.h>
#include <tessera/comm/gloo.h>

#include <tests/distributed/conformance.h>
#include <tests/distributed/harness.h>

#include <random>

namespace {

using namespace tessera;
using namespace tessera::testing;
using comm::ring::Algorithm;

Group make_group(const std::string& store_path, int rank, int size, std::optional<comm::ring::Choice> choice) {
  const auto store = c10::make_intrusive<c10d::FileStore>(store_path, size);
  const auto timeout = tessera::testing::patience(std::chrono::milliseconds(60'000));
  comm::C10dOptions options;
  options.name = "ring";
  options.kind = "gloo";
  options.own_collectives = true;
  options.choice = choice;
  return Group(comm::make_c10d_backend(
      comm::make_gloo(store, rank, size, {.name = "", .address = "127.0.0.1"}, timeout, timeout), options));
}

class RingConformance : public ::testing::TestWithParam<std::tuple<Algorithm, int>> {};

TEST_P(RingConformance, all_operations) {
  const auto [algorithm, ranks] = GetParam();
  const TemporaryFolder folder;
  // Small chunks, so that even small tensors are split into many segments.
  const comm::ring::Choice choice{.algorithm = algorithm, .chunk_bytes = 512, .window = 3};
  run_ranks(ranks, [&](comm::World& world) {
    const Group group = make_group(folder.path() + "/store", world.rank(), ranks, choice);
    conformance_all(group);
    world.group().barrier().wait();
  });
}

INSTANTIATE_TEST_SUITE_P(Algorithms, RingConformance,
                         ::testing::Combine(::testing::Values(Algorithm::ring, Algorithm::direct,
                                                              Algorithm::halving_doubling, Algorithm::doubling),
                                            ::testing::Values(2, 3, 4)),
                         [](const auto& info) {
                           return concat(comm::ring::algorithm_name(std::get<0>(info.param)), "_",
                                         std::get<1>(info.param));
                         });

TEST(RingConformance, sixteen_megabytes) {
  const TemporaryFolder folder;
  for (const Algorithm algorithm : {Algorithm::ring, Algorithm::direct, Algorithm::halving_doubling}) {
    const std::string path = concat(folder.path(), "/", comm::ring::algorithm_name(algorithm));
    run_ranks(3, [&](comm::World& world) {
      const Group group = make_group(path, world.rank(), 3, comm::ring::Choice{.algorithm = algorithm});
      check_large(group);
      world.group().barrier().wait();
    });
  }
}

// Equal bits on all ranks and in repeated runs.
TEST(RingConformance, the_same_bits_on_every_rank_every_time) {
  run_ranks(4, [](comm::World& world) {
    for (const auto dtype : {at::kFloat, at::kBFloat16}) {
      for (const std::int64_t n : {10, 5000, 300000}) {
        at::manual_seed(static_cast<std::uint64_t>(world.rank()) + 1);
        const at::Tensor mine = at::randn({n}).to(dtype);
        at::Tensor first = mine.clone(), second = mine.clone();
        world.group().all_reduce(first, Reduction::mean).wait();
        world.group().all_reduce(second, Reduction::mean).wait();
        EXPECT_TRUE(at::equal(first, second));
        at::Tensor all = at::empty({n * 4}, first.options());
        world.group().all_gather(all, first).wait();
        for (int r = 0; r < 4; ++r) EXPECT_TRUE(at::equal(all.narrow(0, r * n, n), first));
      }
    }
  });
}

// Operations of both kinds in flight on one group complete in the order in which they were started.
TEST(RingConformance, order_is_kept_between_own_and_native_operations) {
  run_ranks(3, [](comm::World& world) {
    const Group& group = world.group();
    for (int i = 0; i < 20; ++i) {
      at::Tensor t = at::full({200000}, static_cast<float>(world.rank() + i));
      Work sum = group.all_reduce(t);       // 3 + 3 i
      Work spread = group.broadcast(t, 1);  // the same
      Work again = group.all_reduce(t);     // 3 times that
      again.wait();
      EXPECT_TRUE(spread.done());
      EXPECT_TRUE(sum.done());
      EXPECT_EQ(t[199999].item<float>(), static_cast<float>(9 + 9 * i));
    }
  });
}

}  // namespace
