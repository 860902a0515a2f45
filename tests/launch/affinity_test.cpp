#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/launch/agent/affinity.h>
#include <algorithm>
#include <set>

namespace tessera::launch {
namespace {

using Ints = std::vector<int>;

TEST(Affinity, CoreLists) {
  const Ints usable = {0, 1, 2, 3, 4, 5, 9};
  EXPECT_EQ(parse_core_list("1,3-5", usable), (Ints{1, 3, 4, 5}));
  EXPECT_EQ(parse_core_list("9,0", usable), (Ints{0, 9}));
  for (const char* bad : {"", "a", "1-", "-1", "3-1", "1,1", "1-3,2", "6", "1,,2", "5-9", "99999999999"}) {
    EXPECT_THROW(parse_core_list(bad, usable), InputError) << bad;
  }
}

TEST(Affinity, Shares) {
  using Shares = std::vector<Ints>;
  EXPECT_EQ(share_cores({0, 1, 2, 3}, 2), (Shares{{0, 1}, {2, 3}}));
  EXPECT_EQ(share_cores({0, 1, 2, 3, 4}, 2), (Shares{{0, 1}, {2, 3, 4}}));
  EXPECT_EQ(share_cores({4, 7}, 5), (Shares{{4}, {7}, {4}, {7}, {4}}));
}

RC_GTEST_PROP(Affinity, EveryCoreServesAndSharesAreEven, ()) {
  const int cores = *rc::gen::inRange(1, 40), ranks = *rc::gen::inRange(1, 40);
  Ints all(static_cast<std::size_t>(cores));
  for (int i = 0; i < cores; ++i) all[static_cast<std::size_t>(i)] = 3 * i + 1;
  const auto shares = share_cores(all, ranks);
  RC_ASSERT(static_cast<int>(shares.size()) == ranks);
  std::multiset<int> used;
  std::size_t smallest = all.size(), largest = 0;
  for (const Ints& share : shares) {
    used.insert(share.begin(), share.end());
    smallest = std::min(smallest, share.size());
    largest = std::max(largest, share.size());
  }
  RC_ASSERT(smallest >= 1u && largest - smallest <= 1u);
  for (int core : all) {
    const auto times = static_cast<int>(used.count(core));
    RC_ASSERT((cores >= ranks ? times == 1 : times >= ranks / cores && times <= ranks / cores + 1));
  }
}

TEST(Affinity, BindingLastsAsLongAsTheObject) {
  const Ints before = usable_cores();
  ASSERT_FALSE(before.empty());
  {
    const CoreBinding binding({before.back()});
    EXPECT_EQ(usable_cores(), (Ints{before.back()}));
  }
  EXPECT_EQ(usable_cores(), before);
  {
    const CoreBinding none({});
  }
  EXPECT_EQ(usable_cores(), before);
  EXPECT_THROW(CoreBinding({CPU_SETSIZE - 1}), InputError);
}

}  // namespace
}  // namespace tessera::launch
