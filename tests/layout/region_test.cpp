#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <tessera/base/error.h>
#include <tessera/layout/region.h>

#include <limits>
#include <map>
#include <numeric>
#include <string>

namespace tessera::layout {
namespace {

using Shape = std::vector<std::int64_t>;
constexpr std::int64_t max64 = std::numeric_limits<std::int64_t>::max();

std::int64_t product(const Shape& shape) {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::vector<CommonRun> runs_of(const Shape& tensor, const Region& first, const Region& second) {
  std::vector<CommonRun> runs;
  for_each_common_run(tensor, first, second, [&](const CommonRun& run) { runs.push_back(run); });
  return runs;
}

/// Maps each element of the tensor in the region (its index in the flattened tensor) to its position after
/// region.begin.
std::map<std::int64_t, std::int64_t> elements_of(const Shape& tensor, const Region& region) {
  std::map<std::int64_t, std::int64_t> places;
  for (std::int64_t place = region.begin; place < region.end; ++place) {
    std::int64_t left = place, in_tensor = 0, stride = 1;
    for (std::size_t d = tensor.size(); d-- > 0;) {
      in_tensor += (region.offset[d] + left % region.shape[d]) * stride;
      left /= region.shape[d];
      stride *= tensor[d];
    }
    places[in_tensor] = place - region.begin;
  }
  return places;
}

/// Uniform in [begin, end): rapidcheck's inRange stays near the low end in early cases.
std::int64_t any_of(std::int64_t begin, std::int64_t end) {
  return *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(begin, end));
}

Shape any_shape() {
  Shape shape(static_cast<std::size_t>(any_of(0, 5)));
  for (auto& size : shape) size = *rc::gen::weightedElement<std::int64_t>({{1, 0}, {3, 1}, {4, 2}, {4, 3}, {3, 5}});
  return shape;
}

/// A box, or a shape as in real shardings: the whole tensor, some of its rows, or the extents of `like` in some
/// dimensions.
Region any_region(const Shape& tensor, const Region* like = nullptr) {
  Region region;
  const std::int64_t kind = any_of(0, 4);
  for (std::size_t d = 0; d < tensor.size(); ++d) {
    std::int64_t begin = 0, end = tensor[d];
    if (kind == 1 || (kind == 2 && d == 0)) {
      begin = any_of(0, tensor[d] + 1);
      end = any_of(begin, tensor[d] + 1);
    } else if (kind == 3 && like != nullptr && any_of(0, 4) != 0) {
      begin = like->offset[d];
      end = begin + like->shape[d];
    }
    region.offset.push_back(begin);
    region.shape.push_back(end - begin);
  }
  region.end = product(region.shape);
  if (any_of(0, 2) == 1) {
    region.begin = any_of(0, region.end + 1);
    region.end = any_of(region.begin, region.end + 1);
  }
  return region;
}

RC_GTEST_PROP(Region, CommonRunsAreWhatBothHold, ()) {
  const Shape tensor = any_shape();
  const Region first = any_region(tensor), second = any_region(tensor, &first);
  check_region(first, tensor, "first");
  check_region(second, tensor, "second");
  const auto in_first = elements_of(tensor, first), in_second = elements_of(tensor, second);
  std::vector<CommonRun> expected;  // element by element; runs join elements that are adjacent in both
  for (const auto& [element, from] : in_first) {
    const auto found = in_second.find(element);
    if (found == in_second.end()) continue;
    const std::int64_t to = found->second;
    if (!expected.empty() && expected.back().from + expected.back().count == from &&
        expected.back().to + expected.back().count == to)
      ++expected.back().count;
    else
      expected.push_back({from, to, 1});
  }
  RC_ASSERT(runs_of(tensor, first, second) == expected);
  RC_ASSERT(have_common_elements(tensor, first, second) == !expected.empty());
}

RC_GTEST_PROP(Region, APartitionIsReadBackWhole, ()) {
  const Shape tensor = any_shape();
  const Region wanted = any_region(tensor);
  const std::int64_t numel = product(tensor), ranks = any_of(1, 5), part = (numel + ranks - 1) / ranks;
  std::vector<int> times(static_cast<std::size_t>(wanted.numel()));
  for (std::int64_t rank = 0; rank < ranks; ++rank) {
    const Region piece = flat_region(tensor, std::min(rank * part, numel), std::min((rank + 1) * part, numel));
    for (const CommonRun& run : runs_of(tensor, piece, wanted))
      for (std::int64_t i = 0; i < run.count; ++i) ++times[static_cast<std::size_t>(run.to + i)];
  }
  RC_ASSERT(times == std::vector<int>(times.size(), 1));
}

TEST(Region, RunsByHand) {
  const Shape tensor = {4, 6};
  const Region columns{{0, 2}, {4, 3}, 0, 12}, rows{{1, 0}, {2, 6}, 0, 12};
  EXPECT_EQ(runs_of(tensor, columns, rows), (std::vector<CommonRun>{{3, 2, 3}, {6, 8, 3}}));
  const Region lower{
      {2, 2}, {2, 3}, 0, 6};  // the same columns, two of the rows: one run, despite the elements in between
  EXPECT_EQ(runs_of(tensor, columns, lower), (std::vector<CommonRun>{{6, 0, 6}}));
  EXPECT_EQ(runs_of({}, whole_region({}), whole_region({})), (std::vector<CommonRun>{{0, 0, 1}}));
  EXPECT_TRUE(runs_of({0, 3}, whole_region({0, 3}), whole_region({0, 3})).empty());
}

TEST(Region, WorkFollowsTheRunsNotTheElements) {
  const Shape tensor = {1 << 30, 1 << 30};
  const std::int64_t numel = product(tensor), half = numel / 2;
  EXPECT_EQ(runs_of(tensor, flat_region(tensor, 0, half + 5), flat_region(tensor, half, numel)),
            (std::vector<CommonRun>{{half, 0, 5}}));
  // A column of 2^30 rows: two of them are in the range.
  const Region column{{0, 7}, {1 << 30, 1}, 0, 1 << 30};
  const Region range = flat_region(tensor, half + 7, half + (std::int64_t{1} << 30) + 8);
  EXPECT_EQ(runs_of(tensor, range, column), (std::vector<CommonRun>{{0, 1 << 29, 1}, {1 << 30, (1 << 29) + 1, 1}}));
  EXPECT_TRUE(runs_of(tensor, column, {{0, 8}, {1 << 30, 1}, 0, 1 << 30}).empty());
}

TEST(Region, WholeAndFlat) {
  EXPECT_EQ(whole_region({2, 3}), (Region{{0, 0}, {2, 3}, 0, 6}));
  EXPECT_EQ(whole_region({}).numel(), 1);
  EXPECT_EQ(whole_region({5, 0}).numel(), 0);
  EXPECT_EQ(flat_region({2, 3}, 1, 4), (Region{{0, 0}, {2, 3}, 1, 4}));
  EXPECT_THROW(flat_region({2, 3}, 1, 7), InputError);
  EXPECT_THROW(whole_region({1 << 30, 1 << 30, 8}), InputError);
  EXPECT_THROW(whole_region({1 << 30, 0, 1 << 30, 8}), InputError);  // strides are products too
  EXPECT_THROW(whole_region({-1}), InputError);
}

TEST(Region, WhatLeavesTheTensorIsRefusedWithTheNumbers) {
  const auto complaint = [](const Region& region, const Shape& tensor) -> std::string {
    try {
      check_region(region, tensor, "piece 3 of 'w'");
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  };
  const Shape tensor = {4, 6};
  EXPECT_EQ(complaint({{1, 2}, {3, 4}, 2, 12}, tensor), "");
  EXPECT_EQ(complaint({{4, 6}, {0, 0}, 0, 0}, tensor), "");  // an empty box at the end
  EXPECT_EQ(complaint({{1, 2}, {3, 5}, 0, 15}, tensor),
            "piece 3 of 'w': the box at [1, 2] of shape [3, 5] leaves the tensor of shape [4, 6] in dimension 1");
  EXPECT_EQ(complaint({{1, 2}, {3, 4}, 0, 13}, tensor),
            "piece 3 of 'w': elements [0, 13) are not a range of the 12 elements of the box of shape [3, 4]");
  EXPECT_EQ(complaint({{1}, {3}, 0, 3}, tensor),
            "piece 3 of 'w': the box at [1] of shape [3] needs the 2 dimensions of the tensor of shape [4, 6]");
  for (const Region& bad : {Region{{-1, 0}, {1, 1}, 0, 1}, Region{{0, 0}, {-1, 1}, 0, 0}, Region{{5, 0}, {0, 6}, 0, 0},
                            Region{{1, max64}, {1, max64}, 0, 1}, Region{{1, 1}, {max64, max64}, 0, 1},
                            Region{{0, 0}, {4, 6}, -1, 3}, Region{{0, 0}, {4, 6}, 4, 3}})
    EXPECT_NE(complaint(bad, tensor), "");
  EXPECT_NE(complaint({{0, 0}, {1, 1}, 0, 1}, {max64, 2}).find("does not fit into 64 bits"), std::string::npos);
}

}  // namespace
}  // namespace tessera::layout
