// Host-staged groups: with CPU tensors always; with a GPU (several ranks on one device, and NCCL alone) if there is
// one.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/comm/backend_plugin.h>
#include <tessera/comm/c10d/c10d_backend.h>
#include <tessera/comm/gloo.h>
#include <tessera/comm/hierarchical/staged.h>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/FileStore.hpp>

#include <tessera/base/file.h>

#include <tests/distributed/conformance.h>
#include <tests/distributed/harness.h>

#include <unistd.h>

namespace {

using namespace tessera;
using namespace tessera::testing;

TEST(Staged, conforms_whatever_the_device) {
  const TemporaryFolder folder;
  run_ranks(3, [&](comm::World& world) {
    const auto store = c10::make_intrusive<c10d::FileStore>(folder.path() + "/store", world.size());
    const auto timeout = patience(std::chrono::milliseconds(60'000));
    comm::C10dOptions options;
    options.name = "staged";
    options.kind = "gloo";
    options.own_collectives = true;
    const auto host = comm::make_c10d_backend(
        comm::make_gloo(store, world.rank(), world.size(), {.name = "", .address = "127.0.0.1"}, timeout, timeout),
        options);
    const Group group(comm::hier::make_staged_backend(host, c10::kCPU));
    EXPECT_EQ(group.backend(), "staged/gloo");
    conformance_all(group);
    check_large(group);
    world.group().barrier().wait();
  });
}

// The parent must not touch CUDA before it forks, so it only checks for the driver's file.
bool has_gpu() { return access("/dev/nvidia0", R_OK) == 0; }

RankOptions on_one_gpu() {
  RankOptions options;
  options.timeout_s = 120;
  options.init.device = Device::cuda;
  options.before_init = [](launch::RankEnvironment& environment, InitOptions&) {
    environment.local_rank = 0;  // all ranks use the first device
  };
  return options;
}

TEST(Gpu, nccl_with_one_rank_per_device_or_local_alone) {
  if (!has_gpu()) GTEST_SKIP() << "no NVIDIA device";
  run_ranks(
      1,
      [](comm::World& world) {
        EXPECT_EQ(world.group().backend(), "local");
        conformance_all(world.group());
        // A communicator of one rank tests NCCL itself, its streams and events.
        const TemporaryFolder folder;
        comm::BackendRequest request;
        request.name = "alone";
        request.device = world.device();
        request.store = c10::make_intrusive<c10d::FileStore>(folder.path() + "/store", 1);
        request.connect_timeout = request.timeout = patience(std::chrono::milliseconds(60'000));
        const Group group(comm::backend_plugin("cuda").make_backend(request));
        EXPECT_EQ(group.backend(), "nccl");
        conformance_all(group);
        check_large(group);
      },
      on_one_gpu());
}

TEST(Gpu, several_ranks_share_a_device) {
  if (!has_gpu()) GTEST_SKIP() << "no NVIDIA device";
  for (const int ranks : {2, 4}) {
    run_ranks(
        ranks,
        [](comm::World& world) {
          EXPECT_EQ(world.group().backend(), "staged/shm");
          conformance_all(world.group());
          check_large(world.group());
        },
        on_one_gpu());
  }
}

}  // namespace
