#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/layout/flat.h>
#include <algorithm>
#include <map>
#include <numeric>

namespace tessera::layout {
namespace {

using Buckets = std::vector<std::vector<std::size_t>>;
constexpr std::int64_t mib = 1 << 20;

std::vector<std::size_t> in_order(std::size_t count) {
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  return order;
}

/// fp32 parameters of the given sizes in units of 1/4 MiB (65,536 elements).
std::vector<Parameter> quarters(const std::vector<std::int64_t>& sizes) {
  std::vector<Parameter> parameters;
  for (std::int64_t size : sizes) parameters.push_back({"p" + std::to_string(parameters.size()), {size, mib / 16}, 4});
  return parameters;
}

Buckets ddp(const std::vector<Parameter>& parameters) {
  return assign_buckets(parameters, in_order(parameters.size()), mib, 25 * mib);
}

TEST(Buckets, DdpRuleByHand) {
  // 0.5 + 0.25 MiB < 1 MiB, and + 0.5 closes the first bucket; 20 + 4 MiB < 25 MiB, and + 2 closes the second; the rest
  // is the third.
  EXPECT_EQ(ddp(quarters({2, 1, 2, 80, 16, 8, 1})), (Buckets{{0, 1, 2}, {3, 4, 5}, {6}}));
  // A bucket exactly at its cap is closed.
  EXPECT_EQ(ddp(quarters({4, 100, 1})), (Buckets{{0}, {1}, {2}}));
  // One parameter larger than the cap fills a bucket alone; nothing is split.
  EXPECT_EQ(ddp(quarters({400, 1, 1})), (Buckets{{0}, {1, 2}}));
  // The last bucket ends exactly at its cap: no empty bucket follows.
  EXPECT_EQ(ddp(quarters({4, 60, 40})), (Buckets{{0}, {1, 2}}));
  EXPECT_EQ(ddp({}), (Buckets{}));
}

TEST(Buckets, ReversedOrder) {
  const auto parameters = quarters({80, 24, 2, 3});
  const std::vector<std::size_t> order = {3, 2, 1, 0};
  EXPECT_EQ(assign_buckets(parameters, order, mib, 25 * mib), (Buckets{{3, 2}, {1, 0}}));
}

TEST(Buckets, EachElementSizeHasItsOwnBuckets) {
  // Caps of 8 and 16 bytes. fp32 (4 bytes): 0 and 2 close at 8. bf16 (2 bytes): 1 and 3 hold 6 bytes, and 4 closes the
  // bucket.
  const std::vector<Parameter> parameters = {{"a", {1}, 4}, {"b", {2}, 2}, {"c", {1}, 4},
                                             {"d", {1}, 2}, {"e", {1}, 2}, {"f", {3}, 4}};
  EXPECT_EQ(assign_buckets(parameters, in_order(6), 8, 16), (Buckets{{0, 2}, {1, 3, 4}, {5}}));
  // An incomplete bucket is ordered by its last parameter, not moved to the end.
  EXPECT_EQ(assign_buckets(parameters, in_order(6), 100, 100), (Buckets{{1, 3, 4}, {0, 2, 5}}));
}

TEST(Buckets, CapZeroMeansOneEach) {
  EXPECT_EQ(assign_buckets(quarters({1, 1}), in_order(2), 0, 0), (Buckets{{0}, {1}}));
}

TEST(Buckets, Errors) {
  const auto parameters = quarters({1, 1});
  const std::vector<std::size_t> twice = {0, 0}, outside = {2};
  EXPECT_THROW(assign_buckets(parameters, in_order(2), -1, 5), InputError);
  EXPECT_THROW(assign_buckets(parameters, in_order(2), 1, -5), InputError);
  EXPECT_THROW(assign_buckets(parameters, twice, 1, 1), Error);
  EXPECT_THROW(assign_buckets(parameters, outside, 1, 1), Error);
  const std::vector<Parameter> huge = {{"p", {std::int64_t{1} << 60}, 4}, {"q", {std::int64_t{1} << 60}, 4}};
  EXPECT_THROW(assign_buckets(huge, in_order(2), std::int64_t{1} << 62 | 1, 1), InputError);
}

RC_GTEST_PROP(Buckets, EveryParameterOnceInOrderWithinCaps, ()) {
  std::vector<Parameter> parameters;
  const auto count = *rc::gen::inRange<std::size_t>(0, 30);
  for (std::size_t i = 0; i < count; ++i) {
    parameters.push_back({"p", {*rc::gen::inRange<std::int64_t>(0, 50)}, *rc::gen::element<std::int64_t>(2, 4, 8)});
  }
  auto order = in_order(count);
  if (*rc::gen::arbitrary<bool>()) std::reverse(order.begin(), order.end());
  std::vector<std::size_t> position(count);
  for (std::size_t i = 0; i < count; ++i) position[order[i]] = i;
  const auto first_cap = *rc::gen::inRange<std::int64_t>(0, 100);
  const auto cap = *rc::gen::inRange<std::int64_t>(0, 400);

  const Buckets buckets = assign_buckets(parameters, order, first_cap, cap);
  std::vector<int> seen(count, 0);
  std::map<std::int64_t, int> filled;    // buckets so far, by element size
  std::map<std::int64_t, bool> partial;  // a bucket below its cap must be the last of its element size
  std::size_t last = 0;
  for (const auto& bucket : buckets) {
    RC_ASSERT(!bucket.empty());
    const auto key = parameters[bucket.front()].element_size;
    const auto limit = filled[key]++ == 0 ? first_cap : cap;
    std::int64_t bytes = 0;
    for (std::size_t i = 0; i < bucket.size(); ++i) {
      RC_ASSERT(parameters[bucket[i]].element_size == key);
      RC_ASSERT(seen[bucket[i]]++ == 0);
      if (i > 0) {
        RC_ASSERT(position[bucket[i - 1]] < position[bucket[i]]);
        RC_ASSERT(bytes < limit);  // otherwise it would have been closed earlier
      }
      bytes += parameters[bucket[i]].bytes();
    }
    RC_ASSERT(!partial[key]);
    partial[key] = bytes < limit;
    RC_ASSERT(position[bucket.back()] >= last);
    last = position[bucket.back()];
  }
  RC_ASSERT(std::all_of(seen.begin(), seen.end(), [](int n) { return n == 1; }));
}

}  // namespace
}  // namespace tessera::layout
