#include <tessera/nn/parallel_for.h>

#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

namespace tessera::nn {
namespace {

/// Calls at::set_num_threads() for the duration of a scope.
class Threads {
 public:
  explicit Threads(int count) : before_(at::get_num_threads()) { at::set_num_threads(count); }
  ~Threads() { at::set_num_threads(before_); }

 private:
  int before_;
};

using Ranges = std::set<std::pair<std::int64_t, std::int64_t>>;

Ranges ranges_of(std::int64_t begin, std::int64_t end, std::int64_t grain) {
  Ranges ranges;
  std::mutex mutex;
  parallel_for(begin, end, grain, [&](std::int64_t first, std::int64_t last) {
    const std::lock_guard lock(mutex);
    EXPECT_TRUE(ranges.emplace(first, last).second);
  });
  return ranges;
}

RC_GTEST_PROP(ParallelFor, CoversEveryIndexOnceInTheRangesOfLibTorch, ()) {
  const Threads threads(*rc::gen::inRange(1, 5));
  const std::int64_t begin = *rc::gen::inRange(-50, 50), count = *rc::gen::inRange(0, 200);
  const std::int64_t grain = *rc::gen::inRange(0, 70);
  const std::int64_t end = begin + count;
  Ranges expected;  // the formula of at::parallel_for
  std::int64_t ranges = at::get_num_threads();
  if (grain > 0) ranges = std::min(ranges, (count + grain - 1) / grain);
  if (count <= grain || count == 1) ranges = 1;
  const std::int64_t each = ranges > 0 ? (count + ranges - 1) / ranges : 0;
  for (std::int64_t first = begin; first < end; first += each) expected.emplace(first, std::min(end, first + each));
  RC_ASSERT(ranges_of(begin, end, grain) == expected);
}

TEST(ParallelFor, EntersThePoolOfLibTorch) {
  const Threads threads(2);
  std::set<std::thread::id> ids;
  std::set<int> numbers;
  std::mutex mutex;
  parallel_for(0, 2, 1, [&](std::int64_t, std::int64_t) {
    EXPECT_TRUE(at::in_parallel_region());
    const std::lock_guard lock(mutex);
    ids.insert(std::this_thread::get_id());
    numbers.insert(at::get_thread_num());
  });
  EXPECT_EQ(ids.size(), 2u);
  EXPECT_EQ(numbers, (std::set<int>{0, 1}));
  EXPECT_FALSE(at::in_parallel_region());
}

TEST(ParallelFor, IsSerialInsideAnotherAndPassesOnAnException) {
  const Threads threads(3);
  parallel_for(0, 3, 1, [](std::int64_t, std::int64_t) { EXPECT_EQ(ranges_of(0, 9, 1), (Ranges{{0, 9}})); });
  EXPECT_THROW(parallel_for(0, 3, 1,
                            [](std::int64_t first, std::int64_t) {
                              if (first == 1) throw std::runtime_error("of the second range");
                            }),
               std::runtime_error);
  EXPECT_EQ(ranges_of(0, 3, 1).size(), 3u) << "the pool serves the next loop";
}

}  // namespace
}  // namespace tessera::nn
