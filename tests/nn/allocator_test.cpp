#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <tessera/base/allocated.h>
#include <tessera/nn/allocator.h>

#include <thread>

using namespace tessera;

namespace {

long page_faults_of(const std::function<void()>& f) {
  rusage before{}, after{};
  getrusage(RUSAGE_SELF, &before);
  f();
  getrusage(RUSAGE_SELF, &after);
  return after.ru_minflt - before.ru_minflt;
}

TEST(KeepMemory, ALargeTensorFaultsItsPagesInOnlyOnce) {
  nn::keep_memory();
  nn::keep_memory();
  const auto make = [] { EXPECT_EQ(at::ones({1 << 20, 25}).sum().item<double>(), 25.0 * (1 << 20)); };
  make();
  for (int i = 0; i < 3; ++i) EXPECT_LT(page_faults_of(make), 500) << "of 25600 pages";
}

TEST(KeepMemory, CountsWhatIsInUseAndWhatIsNot) {
  nn::keep_memory();
  const auto before = nn::kept_memory();
  {
    const at::Tensor t = at::empty({1 << 20});
    EXPECT_EQ(nn::kept_memory().in_use, before.in_use + (4 << 20));
    const at::Tensor small = at::empty({1000});
    EXPECT_EQ(nn::kept_memory().in_use, before.in_use + (4 << 20)) << "small tensors stay with LibTorch's allocator";
  }
  EXPECT_EQ(nn::kept_memory().in_use, before.in_use);
  EXPECT_GE(nn::kept_memory().unused, 4 << 20);
}

TEST(KeepMemory, CountsWhatTensorsAskedForNotWhatTheyWereGiven) {
  nn::keep_memory();
  const std::int64_t before = allocated_memory().now;
  {
    const at::Tensor odd = at::empty({1'234'567}, at::kByte);  // its block has 1,310,720 bytes
    EXPECT_EQ(allocated_memory().now - before, 1'234'567);
    const at::Tensor view = odd.slice(0, 1000);
    EXPECT_EQ(allocated_memory().now - before, 1'234'567) << "a view allocates nothing";
    const at::Tensor small = at::empty({1000}, at::kByte);
    EXPECT_GE(allocated_memory().now - before, 1'235'567);
    EXPECT_LE(allocated_memory().now - before, 1'235'567 + 64) << "small ones are rounded as the heap does";
    EXPECT_GE(allocated_memory().peak, allocated_memory().now);
  }
  EXPECT_EQ(allocated_memory().now, before);
}

TEST(KeepMemory, UnusedBlocksMakeRoomWhereTheSystemHasNoMore) {
  nn::keep_memory();
  const auto bytes = [](std::int64_t mebibytes) { return at::empty({mebibytes << 20}, at::kByte); };
  const at::Tensor used = bytes(640);
  (void)bytes(512);  // kept, because more than that is in use
  ASSERT_GE(nn::kept_memory().unused, std::int64_t{512} << 20);
  rlimit before = {};
  ASSERT_EQ(getrlimit(RLIMIT_DATA, &before), 0);
  rlimit low = before;
  const auto kept = nn::kept_memory();
  low.rlim_cur = static_cast<rlim_t>(kept.in_use + kept.unused) + (std::uint64_t{256} << 20);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &low), 0);
  EXPECT_NO_THROW(bytes(448));
  EXPECT_THROW(bytes(2048), nn::OutOfMemory);
  ASSERT_EQ(setrlimit(RLIMIT_DATA, &before), 0);
  EXPECT_LT(nn::kept_memory().unused, std::int64_t{512} << 20);
  nn::release_unused_memory();
  EXPECT_EQ(nn::kept_memory().unused, 0);
}

TEST(KeepMemory, UnusedBlocksOfOtherSizesAreGivenBackInTheEnd) {
  nn::keep_memory();
  for (std::int64_t size = 64; size <= 160; size += 8)
    at::empty({size << 20}, at::kByte);  // 13 sizes, 1.4 GB if all were kept
  EXPECT_LT(nn::kept_memory().unused, 600 << 20);
}

TEST(KeepMemory, ResizedViewedAndSharedStorageKeepsItsContents) {
  nn::keep_memory();
  at::Tensor t = at::arange(100000, at::kFloat), view = t.slice(0, 50000);
  t.resize_({400000});
  EXPECT_EQ(t[99999].item<double>(), 99999);
  t.reset();
  at::Tensor other = at::zeros({400000});
  EXPECT_EQ(view[1].item<double>(), 50001) << "a view keeps the storage alive";
}

TEST(KeepMemory, TensorsMayDieInAnotherThread) {
  nn::keep_memory();
  const auto before = nn::kept_memory().in_use;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([t = at::ones({1 << 18}), i]() mutable {
      for (int k = 0; k < 50; ++k) t = at::full({(1 << 17) + (i << 12)}, k);
    });
  for (auto& thread : threads) thread.join();
  threads.clear();
  EXPECT_EQ(nn::kept_memory().in_use, before);
}

}  // namespace
