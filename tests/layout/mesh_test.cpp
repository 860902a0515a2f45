#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/layout/mesh.h>

#include <tests/error_of.h>
#include <algorithm>
#include <limits>
#include <set>

namespace tessera::layout {
namespace {

using tessera::testing::error_of;

Mesh any_mesh() {
  const auto sizes = *rc::gen::container<std::array<int, 5>>(rc::gen::inRange(1, 5));
  return Mesh{sizes};
}

std::vector<Axis> any_axes() {
  std::vector<Axis> axes;
  for (Axis axis : all_axes) {
    if (*rc::gen::arbitrary<bool>()) axes.push_back(axis);
  }
  if (*rc::gen::arbitrary<bool>()) std::reverse(axes.begin(), axes.end());
  return axes;
}

TEST(Mesh, RanksAreRowMajorWithTpInnermost) {
  const Mesh mesh{{2, 1, 3, 1, 4}};  // pp 2, dp_shard 3, tp 4
  EXPECT_EQ(mesh.world_size(), 24);
  EXPECT_EQ(rank_at(mesh, {0, 0, 0, 0, 3}), 3);
  EXPECT_EQ(rank_at(mesh, {0, 0, 1, 0, 0}), 4);
  EXPECT_EQ(rank_at(mesh, {1, 0, 0, 0, 0}), 12);
  EXPECT_EQ(coordinates(mesh, 23), (std::array<int, 5>{1, 0, 2, 0, 3}));
}

TEST(Mesh, GroupsOfAnExample) {
  const Mesh mesh{{2, 1, 2, 1, 2}};
  const Axis tp[] = {Axis::tp};
  EXPECT_EQ(all_groups(mesh, tp), (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  const Axis pp[] = {Axis::pp};
  EXPECT_EQ(all_groups(mesh, pp), (std::vector<std::vector<int>>{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  const Axis both[] = {Axis::tp, Axis::pp};
  EXPECT_EQ(group_of(mesh, 6, both), (std::vector<int>{2, 3, 6, 7}));
  EXPECT_EQ(all_groups(mesh, {}).size(), 8u);
}

RC_GTEST_PROP(Mesh, CoordinatesAndRankAreInverse, ()) {
  const Mesh mesh = any_mesh();
  const int rank = *rc::gen::inRange(0, mesh.world_size());
  const auto at = coordinates(mesh, rank);
  for (Axis axis : all_axes) {
    const int coordinate = at[static_cast<std::size_t>(axis)];
    RC_ASSERT(coordinate >= 0 && coordinate < mesh.size(axis));
  }
  RC_ASSERT(rank_at(mesh, at) == rank);
}

RC_GTEST_PROP(Mesh, GroupsPartitionTheWorld, ()) {
  const Mesh mesh = any_mesh();
  const auto axes = any_axes();
  std::size_t expected = 1;
  for (Axis axis : axes) expected *= static_cast<std::size_t>(mesh.size(axis));
  std::set<int> seen;
  int previous_first = -1;
  for (const auto& group : all_groups(mesh, axes)) {
    RC_ASSERT(group.size() == expected);
    RC_ASSERT(std::is_sorted(group.begin(), group.end()));
    RC_ASSERT(group.front() > previous_first);
    previous_first = group.front();
    for (int rank : group) {
      RC_ASSERT(seen.insert(rank).second);
      RC_ASSERT(group_of(mesh, rank, axes) == group);
    }
  }
  RC_ASSERT(seen.size() == static_cast<std::size_t>(mesh.world_size()));
  RC_ASSERT(*seen.begin() == 0);
  RC_ASSERT(*seen.rbegin() == mesh.world_size() - 1);
}

RC_GTEST_PROP(Mesh, MembersDifferOnlyAlongTheAxes, ()) {
  const Mesh mesh = any_mesh();
  const auto axes = any_axes();
  const int rank = *rc::gen::inRange(0, mesh.world_size());
  const auto mine = coordinates(mesh, rank);
  for (int other : group_of(mesh, rank, axes)) {
    const auto theirs = coordinates(mesh, other);
    for (Axis axis : all_axes) {
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
      RC_ASSERT(theirs[static_cast<std::size_t>(axis)] == mine[static_cast<std::size_t>(axis)]);
    }
  }
}

RC_GTEST_PROP(Mesh, OneSizeIsDerived, ()) {
  const Mesh mesh = any_mesh();
  auto sizes = mesh.sizes;
  sizes[*rc::gen::inRange<std::size_t>(0, 5)] = 0;
  RC_ASSERT(make_mesh(sizes, mesh.world_size()).sizes == mesh.sizes);
  RC_ASSERT(make_mesh(mesh.sizes, mesh.world_size()).sizes == mesh.sizes);
}

TEST(Mesh, ErrorsGiveTheNumbers) {
  const auto wrong = error_of([] { make_mesh({2, 1, 3, 1, 1}, 8); });
  EXPECT_NE(wrong.find("pp=2"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("needs 6 ranks"), std::string::npos) << wrong;
  EXPECT_NE(wrong.find("world size is 8"), std::string::npos) << wrong;
  const auto indivisible = error_of([] { make_mesh({1, 1, 0, 1, 3}, 8); });
  EXPECT_NE(indivisible.find("3, which does not divide the world size 8"), std::string::npos) << indivisible;
  EXPECT_NE(error_of([] { make_mesh({0, 1, 0, 1, 1}, 8); }).find("at most one"), std::string::npos);
  EXPECT_NE(error_of([] { make_mesh({1, 1, -2, 1, 1}, 8); }).find("dp_shard=-2"), std::string::npos);
  EXPECT_NE(error_of([] { make_mesh({1, 1, 1, 1, 1}, 0); }).find("not 0"), std::string::npos);
  const int big = std::numeric_limits<int>::max() / 2;
  EXPECT_NE(error_of([&] { make_mesh({big, 1, 3, 1, 1}, 8); }).find("does not fit"), std::string::npos);
}

TEST(Mesh, OutsideTheWorldIsRefused) {
  const Mesh mesh{{1, 1, 2, 1, 1}};
  EXPECT_THROW(coordinates(mesh, 2), Error);
  EXPECT_THROW(coordinates(mesh, -1), Error);
  EXPECT_THROW(rank_at(mesh, {0, 0, 2, 0, 0}), Error);
}

}  // namespace
}  // namespace tessera::layout
