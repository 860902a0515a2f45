// Tensors that the ranks of a host share: where they lie, who uses them, what comes back.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/comm/shared_memory.h>
#include <tessera/wire/shm/arena.h>

#include <tests/distributed/harness.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

RankOptions over(const std::string& backend) {
  RankOptions options;
  options.init.backend = backend;
  return options;
}

TEST(SharedMemory, tensors_lie_there_when_peers_read_it) {
  run_ranks(
      2,
      [](comm::World& world) {
        const comm::Group& group = world.group();
        at::Tensor t = comm::empty_shared({300, 7}, at::TensorOptions(at::kDouble));
        EXPECT_TRUE(comm::is_shared(t));
        EXPECT_EQ(t.sizes(), (at::IntArrayRef{300, 7}));
        EXPECT_EQ(t.scalar_type(), at::kDouble);
        EXPECT_TRUE(t.is_contiguous());
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.const_data_ptr()) % 4096, 0u);
        EXPECT_FALSE(comm::is_shared(at::zeros({300})));
        const at::Tensor leaf = comm::zeros_shared(group, {5}, at::TensorOptions(at::kFloat).requires_grad(true));
        EXPECT_TRUE(leaf.requires_grad() && leaf.is_leaf());
        EXPECT_EQ(leaf.abs().sum().item<float>(), 0);
        EXPECT_EQ(comm::empty_shared({0, 3}).numel(), 0);
        t.fill_(world.rank() + 1);
        group.all_reduce(t).wait();
        EXPECT_TRUE(at::equal(t, at::full({300, 7}, 3.0, at::kDouble)));
      },
      over("shm"));
}

TEST(SharedMemory, the_memory_is_used_again) {
  run_ranks(
      2,
      [](comm::World&) {
        const void* first = comm::empty_shared({1 << 20}).const_data_ptr();
        for (int i = 0; i < 5; ++i) EXPECT_EQ(comm::empty_shared({1 << 20}).const_data_ptr(), first);
        at::Tensor view = comm::empty_shared({1 << 20}).narrow(0, 5, 10);  // a view keeps all of it
        EXPECT_NE(comm::empty_shared({1 << 20}).const_data_ptr(), first);
        view.reset();
        EXPECT_EQ(comm::empty_shared({1 << 20}).const_data_ptr(), first);
        EXPECT_EQ(wire::shm::process_arena()->statistics().used, 0u);
      },
      over("shm"));
}

TEST(SharedMemory, is_ordinary_memory_when_nobody_reads_it) {
  for (const int ranks : {1, 2})
    run_ranks(
        ranks,
        [](comm::World& world) {
          const at::Tensor t = comm::empty_shared({1000}, at::TensorOptions(at::kFloat).requires_grad(true));
          EXPECT_FALSE(comm::is_shared(t));
          EXPECT_TRUE(t.requires_grad());
          EXPECT_FALSE(comm::is_shared(comm::zeros_shared(world.group(), {1000})));
        },
        over(ranks == 1 ? "auto" : "gloo"));
  EXPECT_FALSE(comm::is_shared(comm::empty_shared({1000})));  // without init()
}

}  // namespace
