#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/layout/owners.h>

#include <algorithm>
#include <limits>

namespace tessera::layout {
namespace {

std::vector<std::int64_t> loads_of(const std::vector<std::int64_t>& bytes, const std::vector<int>& owner, int ranks) {
  std::vector<std::int64_t> loads(static_cast<std::size_t>(ranks));
  for (std::size_t i = 0; i < bytes.size(); ++i) loads[static_cast<std::size_t>(owner[i])] += bytes[i];
  return loads;
}

/// The smallest possible maximum load, by trying all assignments.
std::int64_t best_maximum(const std::vector<std::int64_t>& bytes, std::size_t next, std::vector<std::int64_t>& loads) {
  if (next == bytes.size()) return *std::max_element(loads.begin(), loads.end());
  std::int64_t best = std::numeric_limits<std::int64_t>::max();
  for (std::int64_t& load : loads) {
    load += bytes[next];
    best = std::min(best, best_maximum(bytes, next + 1, loads));
    load -= bytes[next];
  }
  return best;
}

/// Uniform in [begin, end): rapidcheck's inRange stays near the low end in early cases.
template <class Number>
rc::Gen<Number> any_of(Number begin, Number end) {
  return rc::gen::resize(rc::kNominalSize, rc::gen::inRange(begin, end));
}

RC_GTEST_PROP(Owners, AtMostFourThirdsOfTheBestMaximum, ()) {
  const int ranks = *any_of(1, 4);
  const auto bytes = *rc::gen::container<std::vector<std::int64_t>>(static_cast<std::size_t>(*any_of(0, 8)),
                                                                    any_of<std::int64_t>(0, 30));
  const std::vector<int> owner = assign_owners(bytes, ranks);
  RC_ASSERT(owner.size() == bytes.size());
  for (const int rank : owner) RC_ASSERT(0 <= rank && rank < ranks);
  const auto loads = loads_of(bytes, owner, ranks);
  std::vector<std::int64_t> empty(static_cast<std::size_t>(ranks));
  RC_ASSERT(3 * *std::max_element(loads.begin(), loads.end()) <= 4 * best_maximum(bytes, 0, empty));
}

RC_GTEST_PROP(Owners, NoRankIsAheadByMoreThanTheLastItGot, ()) {
  const int ranks = *any_of(1, 9);
  const auto bytes = *rc::gen::container<std::vector<std::int64_t>>(any_of<std::int64_t>(0, 1 << 30));
  const std::vector<int> owner = assign_owners(bytes, ranks);
  const auto loads = loads_of(bytes, owner, ranks);
  const std::int64_t least = *std::min_element(loads.begin(), loads.end());
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t smallest = -1;  // the smallest parameter that the rank owns: the last one assigned to it
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (owner[i] == rank && (smallest < 0 || bytes[i] < smallest)) smallest = bytes[i];
    if (smallest >= 0) RC_ASSERT(loads[static_cast<std::size_t>(rank)] - smallest <= least);
  }
}

TEST(Owners, AnExampleByHand) {
  const std::vector<std::int64_t> bytes = {3, 100, 40, 50, 40, 0};
  // 100 goes to rank 0; 50 and 40 (the earlier one) to ranks 1 and 2; 40 to rank 2 (load 40); 3 to rank 1 (load 50);
  // nothing to rank 1
  EXPECT_EQ(assign_owners(bytes, 3), (std::vector<int>{1, 0, 2, 1, 2, 1}));
  EXPECT_EQ(assign_owners(bytes, 1), std::vector<int>(6, 0));
  EXPECT_TRUE(assign_owners({}, 2).empty());
  const std::vector<std::int64_t> equal(4, 8);
  EXPECT_EQ(assign_owners(equal, 4), (std::vector<int>{0, 1, 2, 3}));  // ties: lowest rank first
}

RC_GTEST_PROP(Owners, WhatIsHeldStaysAndTheRestGoesWhereLeastIs, ()) {
  const int ranks = *any_of(1, 6);
  const auto bytes = *rc::gen::container<std::vector<std::int64_t>>(any_of<std::int64_t>(0, 1 << 20));
  const auto holders = *rc::gen::container<std::vector<int>>(bytes.size(), any_of(-1, ranks));
  const std::vector<int> owner = assign_owners(bytes, ranks, holders);
  const auto loads = loads_of(bytes, owner, ranks);
  const std::int64_t least = *std::min_element(loads.begin(), loads.end());
  for (std::size_t i = 0; i < bytes.size(); ++i)
    if (holders[i] >= 0) RC_ASSERT(owner[i] == holders[i]);
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t last = -1;  // the last parameter assigned to the rank: the smallest
    for (std::size_t i = 0; i < bytes.size(); ++i)
      if (holders[i] < 0 && owner[i] == rank && (last < 0 || bytes[i] < last)) last = bytes[i];
    if (last >= 0) RC_ASSERT(loads[static_cast<std::size_t>(rank)] - last <= least);
  }
  if (std::all_of(holders.begin(), holders.end(), [](int holder) { return holder < 0; }))
    RC_ASSERT(owner == assign_owners(bytes, ranks));
}

TEST(Owners, AnExampleWithHoldersByHand) {
  // rank 0 keeps 40, rank 1 keeps 30; then 50 to rank 2, 35 to rank 1 (65), 20 to rank 0 (60)
  const std::vector<std::int64_t> bytes = {40, 35, 30, 50, 20};
  const std::vector<int> holders = {0, -1, 1, -1, -1};
  EXPECT_EQ(assign_owners(bytes, 3, holders), (std::vector<int>{0, 1, 1, 2, 0}));
}

TEST(Owners, ImpossibleCallsAreErrors) {
  const std::vector<std::int64_t> negative = {4, -1};
  const std::vector<std::int64_t> huge(2, std::numeric_limits<std::int64_t>::max());
  EXPECT_THROW(assign_owners(std::vector<std::int64_t>{1}, 0), Error);
  EXPECT_THROW(assign_owners(negative, 2), Error);
  EXPECT_THROW(assign_owners(huge, 2), Error);
  const std::vector<std::int64_t> two = {4, 1};
  EXPECT_THROW(assign_owners(two, 2, std::vector<int>{0}), Error);
  EXPECT_THROW(assign_owners(two, 2, std::vector<int>{0, 2}), Error);
  EXPECT_THROW(assign_owners(two, 2, std::vector<int>{-2, 0}), Error);
}

}  // namespace
}  // namespace tessera::layout
