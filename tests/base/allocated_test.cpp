#include <tessera/base/allocated.h>

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace tessera {
namespace {

TEST(Allocated, CountsEveryByteOfEveryThreadAndTheMostOfAllTogether) {
  const AllocatedMemory before = allocated_memory();
  count_allocated(before.peak - before.now + 100);
  EXPECT_EQ(allocated_memory().peak, before.peak + 100);
  count_allocated(-40);
  EXPECT_EQ(allocated_memory().now, before.peak + 60);
  EXPECT_EQ(allocated_memory().peak, before.peak + 100);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([] {
      for (int k = 0; k < 1000; ++k) count_allocated(7), count_allocated(-7);
      count_allocated(10);
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(allocated_memory().now, before.peak + 100);
  EXPECT_LE(allocated_memory().peak, before.peak + 100 + 3 * 7);
}

}  // namespace
}  // namespace tessera
