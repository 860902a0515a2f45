// Topology: hosts, local ranks, rails.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/comm/hierarchical/topology.h>

#include <algorithm>
#include <numeric>

namespace {

using namespace tessera;
using comm::hier::Topology;

TEST(Topology, even_hosts_with_interleaved_ranks) {
  const Topology t({"b", "a", "b", "a"});
  EXPECT_EQ(t.hosts(), 2);
  EXPECT_TRUE(t.even());
  EXPECT_TRUE(t.two_levels());
  EXPECT_EQ(t.members(0), (std::vector<int>{0, 2}));  // numbered by the lowest rank, not by name
  EXPECT_EQ(t.host(3), 1);
  EXPECT_EQ(t.local(3), 1);
  EXPECT_EQ(t.by_rail(), (std::vector<int>{0, 1, 2, 3}));
  EXPECT_EQ(t.by_host(), (std::vector<int>{0, 2, 1, 3}));
}

TEST(Topology, uneven_hosts_have_no_rails) {
  const Topology t({"a", "b", "b", "b"});
  EXPECT_FALSE(t.even());
  EXPECT_TRUE(t.two_levels());
  EXPECT_THROW(t.by_rail(), Error);
}

TEST(Topology, one_level_is_enough) {
  EXPECT_FALSE(Topology({"a", "a", "a"}).two_levels());
  EXPECT_FALSE(Topology({"a", "b", "c"}).two_levels());
  EXPECT_THROW(Topology({}), Error);
}

RC_GTEST_PROP(Topology, orders_are_permutations_and_places_agree, ()) {
  const auto numbers = *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 5)));
  std::vector<std::string> hosts;
  for (const int n : numbers) hosts.push_back(concat("host", n));
  const Topology t(hosts);
  std::vector<int> order = t.by_host();
  for (int r = 0; r < t.ranks(); ++r) {
    RC_ASSERT(t.members(t.host(r))[static_cast<std::size_t>(t.local(r))] == r);
    for (int q = 0; q < r; ++q) {
      const bool same = hosts[static_cast<std::size_t>(q)] == hosts[static_cast<std::size_t>(r)];
      RC_ASSERT(same == (t.host(q) == t.host(r)));
      if (same) RC_ASSERT(t.local(q) < t.local(r));
    }
  }
  std::sort(order.begin(), order.end());
  std::vector<int> all(order.size());
  std::iota(all.begin(), all.end(), 0);
  RC_ASSERT(order == all);
  if (t.even()) {
    std::vector<int> rails = t.by_rail();
    std::sort(rails.begin(), rails.end());
    RC_ASSERT(rails == all);
  }
}

}  // namespace
