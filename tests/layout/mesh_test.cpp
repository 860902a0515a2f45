#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/layout/mesh.h>

#include <tests/error_of.h>
#include <algorithm>
#include <functional>
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
  for (Axis axis : dense_axes) {
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
  EXPECT_EQ(coordinates(mesh, 23), (Coordinates{1, 0, 2, 0, 3}));
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
  for (Axis axis : dense_axes) {
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
    for (Axis axis : dense_axes) {
      if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
      RC_ASSERT(theirs[static_cast<std::size_t>(axis)] == mine[static_cast<std::size_t>(axis)]);
    }
  }
}

RC_GTEST_PROP(Mesh, OneSizeIsDerived, ()) {
  const Mesh mesh = any_mesh();
  MeshSizes sizes{mesh.sizes};
  RC_ASSERT(make_mesh(sizes, mesh.world_size()).sizes == mesh.sizes);
  sizes.sizes[*rc::gen::inRange<std::size_t>(0, 5)] = 0;
  RC_ASSERT(make_mesh(sizes, mesh.world_size()).sizes == mesh.sizes);
}

using Groups = std::vector<std::vector<int>>;
Groups groups(const Mesh& mesh, std::string_view axes) { return all_groups(mesh, parse_axes(axes)); }

// The example of Megatron's initialize_model_parallel (megatron/core/parallel_state.py): 16 ranks, tp 2, pp 4.
TEST(Mesh, MegatronsExample) {
  const Mesh mesh = parse_mesh("tp=2,pp=4,dp=-1", 16);
  EXPECT_EQ(groups(mesh, "dp"), (Groups{{0, 2}, {1, 3}, {4, 6}, {5, 7}, {8, 10}, {9, 11}, {12, 14}, {13, 15}}));
  EXPECT_EQ(groups(mesh, "tp"), (Groups{{0, 1}, {2, 3}, {4, 5}, {6, 7}, {8, 9}, {10, 11}, {12, 13}, {14, 15}}));
  EXPECT_EQ(groups(mesh, "pp"), (Groups{{0, 4, 8, 12}, {1, 5, 9, 13}, {2, 6, 10, 14}, {3, 7, 11, 15}}));
  EXPECT_EQ(groups(mesh, "model"), (Groups{{0, 1, 4, 5, 8, 9, 12, 13}, {2, 3, 6, 7, 10, 11, 14, 15}}));
  EXPECT_EQ(embedding_group(mesh, 6), (std::vector<int>{2, 14}));
  EXPECT_EQ(embedding_group(parse_mesh("dp=2"), 1), (std::vector<int>{1}));
}

// Groups of ranks that have the same part of attention and together hold every expert once.
TEST(Mesh, ranks_beside_experts) {
  const auto beside = [](const char* mesh, bool stages = false) {
    return groups_beside_experts(parse_mesh(mesh), stages);
  };
  for (const char* cut_alike : {"dp=4,ep=2", "dp=4,tp=2,ep=2", "pp=2,dp=2,tp=2,ep=2"})
    EXPECT_EQ(beside(cut_alike), groups(parse_mesh(cut_alike), "ep")) << cut_alike;
  EXPECT_EQ(beside("pp=2,dp=2,tp=2,ep=2", true), groups(parse_mesh("pp=2,dp=2,tp=2,ep=2"), "pp-ep"));
  EXPECT_EQ(beside("dp=2,tp=2,ep=4,etp=1"), (Groups{{0, 2}, {1, 3}}));
  EXPECT_EQ(beside("dp=2,tp=2,ep=2,etp=1"), (Groups{{0}, {1}, {2}, {3}}));
  EXPECT_EQ(beside("pp=2,dp=2,tp=2,ep=4,etp=1", true), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
}

// Experts on a grid of their own over the same ranks: attention tp 2 x cp 2 x dp 2, experts etp 1 x ep 4 x edp 2.
TEST(Mesh, ExpertsHaveTheirOwnGrid) {
  const Mesh mesh = parse_mesh("tp=2,cp=2,dp=2,ep=4,etp=1");
  EXPECT_EQ(describe(mesh, View::expert), "pp=1 edp=2 ep=4 etp=1");
  EXPECT_EQ(groups(mesh, "ep"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(groups(mesh, "edp"), (Groups{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(groups(mesh, "loss"), (Groups{{0, 2, 4, 6}, {1, 3, 5, 7}}));
  EXPECT_EQ(groups(mesh, "tp-cp"), (Groups{{0, 1, 2, 3}, {4, 5, 6, 7}}));
  EXPECT_EQ(describe(parse_mesh("pp=2,dp=2,tp=2"), View::expert), "pp=2 edp=2 ep=1 etp=2") << "without experts: as tp";
  EXPECT_EQ(describe_rank(parse_mesh("dp_replicate=2,dp=2,tp=2"), 5), "dp_replicate 1, dp_shard 0, tp 1");
  EXPECT_EQ(describe_rank(parse_mesh("cp=2"), 1), "cp 1") << "axes of size 1 are omitted";
  EXPECT_EQ(describe_rank(parse_mesh("dp=1"), 0), "");
  EXPECT_EQ(coordinates(mesh, 5, View::expert), (Coordinates{0, 1, 1, 0}));
  EXPECT_EQ(rank_at(mesh, {0, 1, 1, 0}, View::expert), 5);
}

/// Every way to write `number` as a product of `count` factors.
void factorizations(int number, int count, std::vector<int>& factors, const std::function<void()>& each) {
  if (count == 1) {
    factors.push_back(number);
    each();
    factors.pop_back();
    return;
  }
  for (int d = 1; d <= number; ++d)
    if (number % d == 0) {
      factors.push_back(d);
      factorizations(number / d, count - 1, factors, each);
      factors.pop_back();
    }
}

/// rank_at and coordinates are inverse to each other, and the groups of every axis partition the world.
bool is_sound(const Mesh& mesh, View view) {
  const int world = mesh.world_size();
  for (int rank = 0; rank < world; ++rank)
    if (rank_at(mesh, coordinates(mesh, rank, view), view) != rank) return false;
  for (const Axis axis : axes_of(view)) {
    const std::array<Axis, 1> axes = {axis};
    int members = 0;
    for (const std::vector<int>& group : all_groups(mesh, axes)) {
      if (static_cast<int>(group.size()) != mesh.size(axis)) return false;
      members += static_cast<int>(group.size());
    }
    if (members != world) return false;
  }
  return true;
}

TEST(Mesh, EveryMeshOfUpTo64RanksIsSound) {
  int dense = 0, expert = 0;
  for (int world = 1; world <= 64; ++world) {
    std::vector<int> factors;
    factorizations(world, 5, factors, [&] {
      const Mesh mesh = make_mesh({.sizes = {factors[0], factors[1], factors[2], factors[3], factors[4]}}, world);
      EXPECT_TRUE(is_sound(mesh, View::dense)) << describe(mesh);
      ++dense;
    });
    factorizations(world, 4, factors, [&] {  // pp, edp, ep, etp; the dense view has only pp and dp_shard
      const Mesh mesh =
          make_mesh({.sizes = {factors[0], 1, world / factors[0], 1, 1}, .ep = factors[2], .etp = factors[3]}, world);
      EXPECT_EQ(mesh.size(Axis::edp), factors[1]);
      EXPECT_TRUE(is_sound(mesh, View::expert)) << describe(mesh, View::expert);
      ++expert;
    });
  }
  EXPECT_GT(dense, 2000);
  EXPECT_GT(expert, 1000);
}

/// A mesh that is refused, and parts of the error: the rule, the numbers, an alternative that fits.
struct Refused {
  const char* text;
  int world;
  std::vector<std::string> words;
};

TEST(Mesh, WhatIsRefusedSaysWhatWouldFit) {
  const std::vector<Refused> table = {
      {"pp=2,dp=2", 8, {"pp=2", "needs 4 ranks", "world size is 8", "make dp_shard 4"}},
      {"pp=4,cp=4", 8, {"needs 16 ranks", "leave one size 0"}},
      {"tp=3,dp=2", 8, {"tp=3 does not divide the 8 ranks", "sizes need 6", "it may be 1, 2, 4, 8"}},
      {"tp=3,dp=0", 8, {"multiply to 3, which does not divide the world size 8"}},
      {"pp=0,dp=0", 8, {"at most one size may be 0"}},
      {"pp=0", 0, {"pp is derived", "--world_size"}},
      {"dp=-2", 8, {"dp_shard=-2", "whole number"}},
      {"tp=two", 8, {"tp=two", "whole number"}},
      {"tp", 8, {"'tp' is not AXIS=SIZE", "pp=2,dp=2,tp=2"}},
      {"", 8, {"is not AXIS=SIZE"}},
      {"tq=2", 8, {"unknown axis 'tq'", "did you mean"}},
      {"sequence=2", 8, {"unknown axis 'sequence'"}},
      {"tp=2,tp=4", 8, {"tp is given twice"}},
      {"dp=2,dp_shard=4", 8, {"dp_shard is given twice"}},
      {"dp=8,edp=2", 8, {"edp is derived from the others"}},
      {"dp=4,tp=2,ep=3", 8, {"ep=3 x etp=2 does not divide the 8 ranks", "ep may be 1, 2, 4"}},
      {"dp=4,tp=2,ep=8", 8, {"ep may be 1, 2, 4", "with ep=8 etp may be 1"}},
      {"pp=2,dp=4,etp=8", 8, {"etp=8 does not divide the 4 ranks", "1, 2, 4"}},
      {"dp=8,ep=0", 8, {"ep must be positive"}},
      {"tp=1073741824,dp=4", 0, {"does not fit into an int"}},
      {"tp=99999999999", 0, {"whole number"}},
      {"dp=2", 0, {}},
  };
  for (const Refused& row : table) {
    if (row.words.empty()) {
      EXPECT_EQ(parse_mesh(row.text, row.world).world_size(), 2);
      continue;
    }
    const std::string error = error_of([&] { parse_mesh(row.text, row.world); });
    for (const std::string& word : row.words)
      EXPECT_NE(error.find(word), std::string::npos) << row.text << ": '" << word << "' is not in: " << error;
  }
  EXPECT_NE(error_of([] { make_mesh({}, 0); }).find("not 0"), std::string::npos);
  const int big = std::numeric_limits<int>::max() / 2;
  EXPECT_NE(error_of([&] { make_mesh({.sizes = {big, 1, 3, 1, 1}}, 8); }).find("does not fit"), std::string::npos);
}

TEST(Mesh, NamesOfGroups) {
  EXPECT_EQ(parse_axes("dp"), (std::vector<Axis>{Axis::dp_replicate, Axis::dp_shard}));
  EXPECT_EQ(parse_axes("cp-tp"), (std::vector<Axis>{Axis::cp, Axis::tp}));
  EXPECT_EQ(parse_axes("dp_shard"), (std::vector<Axis>{Axis::dp_shard}));
  EXPECT_EQ(parse_axes("pp-ep"), (std::vector<Axis>{Axis::pp, Axis::ep}));
  EXPECT_NE(error_of([] { parse_axes("tp-dp_shad"); }).find("did you mean dp_shard"), std::string::npos);
  EXPECT_NE(error_of([] { parse_axes("tp-ep"); }).find("to different views"), std::string::npos);
  for (const NamedAxes& row : named_axes()) EXPECT_EQ(parse_axes(row.name), row.axes) << row.name;
}

TEST(Mesh, TensorParallelRanksShouldShareAHost) {
  EXPECT_EQ(placement_problem(parse_mesh("dp=4,tp=4"), 8), "");
  EXPECT_EQ(placement_problem(parse_mesh("dp=2,tp=4"), 8), "") << "one host";
  const std::string crossing = placement_problem(parse_mesh("dp=3,tp=4"), 6);
  EXPECT_NE(crossing.find("group [4 5 6 7] spans hosts 0 and 1"), std::string::npos) << crossing;
  EXPECT_NE(crossing.find("tp may be 1, 2, 3, 6"), std::string::npos) << crossing;
  EXPECT_NE(placement_problem(parse_mesh("dp=16,tp=1,etp=16"), 8).find("etp=16"), std::string::npos);
}

TEST(Mesh, OutsideTheWorldIsRefused) {
  const Mesh mesh{{1, 1, 2, 1, 1}};
  EXPECT_THROW(coordinates(mesh, 2), Error);
  EXPECT_THROW(coordinates(mesh, -1), Error);
  EXPECT_THROW(rank_at(mesh, {0, 0, 2, 0, 0}), Error);
}

}  // namespace
}  // namespace tessera::layout
