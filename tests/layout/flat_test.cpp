#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/layout/flat.h>
#include <algorithm>
#include <limits>
#include <numeric>

namespace tessera::layout {
namespace {

constexpr std::int64_t max64 = std::numeric_limits<std::int64_t>::max();

struct Case {
  std::vector<Parameter> parameters;
  std::vector<std::size_t> order;
};

/// Up to 12 parameters of 0 to 3 dimensions, and an order that names some of them.
Case any_case() {
  Case result;
  const auto count = *rc::gen::inRange<std::size_t>(0, 13);
  for (std::size_t i = 0; i < count; ++i) {
    auto shape =
        *rc::gen::resize(3, rc::gen::container<std::vector<std::int64_t>>(rc::gen::inRange<std::int64_t>(0, 40)));
    result.parameters.push_back({"p" + std::to_string(i), shape, 4});
  }
  std::vector<std::size_t> all(count);
  std::iota(all.begin(), all.end(), std::size_t{0});
  for (std::size_t i = count; i > 1; --i) std::swap(all[i - 1], all[*rc::gen::inRange<std::size_t>(0, i)]);
  result.order.assign(all.begin(),
                      all.begin() + static_cast<std::ptrdiff_t>(*rc::gen::inRange<std::size_t>(0, count + 1)));
  return result;
}

RC_GTEST_PROP(Flat, SegmentsAreDisjointAlignedAndOrdered, ()) {
  const Case c = any_case();
  const int world = *rc::gen::inRange(1, 9);
  const auto alignment = *rc::gen::element<std::int64_t>(1, 3, 16, 64);
  const FlatLayout layout = make_flat_layout(c.parameters, c.order, world, alignment);
  RC_ASSERT(layout.segments.size() == c.order.size());
  std::int64_t end = 0;
  for (std::size_t i = 0; i < layout.segments.size(); ++i) {
    const Segment& segment = layout.segments[i];
    RC_ASSERT(segment.parameter == c.order[i]);
    RC_ASSERT(segment.numel == c.parameters[segment.parameter].numel());
    RC_ASSERT(segment.offset % alignment == 0);
    RC_ASSERT(segment.offset >= end);
    RC_ASSERT(segment.offset - end < alignment);  // only as much padding as alignment needs
    end = segment.offset + segment.numel;
  }
  RC_ASSERT(layout.world == world);
  RC_ASSERT(layout.padded >= end);
  RC_ASSERT(layout.padded - end < world * alignment);
  RC_ASSERT(layout.padded % (world * alignment) == 0);
}

RC_GTEST_PROP(Flat, ShardsPartitionTheBufferAndCoverEveryElement, ()) {
  const Case c = any_case();
  const int world = *rc::gen::inRange(1, 9);
  const FlatLayout layout = make_flat_layout(c.parameters, c.order, world, 16);
  std::int64_t end = 0;
  for (int rank = 0; rank < world; ++rank) {
    const Range shard = shard_range(layout, rank);
    RC_ASSERT(shard.begin == end);
    RC_ASSERT(shard.end - shard.begin == layout.shard_numel());
    end = shard.end;
  }
  RC_ASSERT(end == layout.padded);
  for (const Segment& segment : layout.segments) {
    std::int64_t at = segment.offset;
    for (int rank = 0; rank < world; ++rank) {
      const Range part = intersect({segment.offset, segment.offset + segment.numel}, shard_range(layout, rank));
      if (part.begin == part.end) continue;
      RC_ASSERT(part.begin == at);
      at = part.end;
    }
    RC_ASSERT(at == segment.offset + segment.numel);
  }
}

Range any_range() {
  const auto begin = *rc::gen::inRange<std::int64_t>(-50, 50);
  return {begin, begin + *rc::gen::inRange<std::int64_t>(0, 50)};
}
bool same(Range a, Range b) { return (a.begin == a.end && b.begin == b.end) || (a.begin == b.begin && a.end == b.end); }
bool holds(Range range, std::int64_t at) { return range.begin <= at && at < range.end; }

RC_GTEST_PROP(Flat, IntersectIsSetIntersection, ()) {
  const Range a = any_range(), b = any_range(), c = any_range();
  const Range both = intersect(a, b);
  RC_ASSERT(both.begin <= both.end);
  for (std::int64_t at = -60; at < 110; ++at) RC_ASSERT(holds(both, at) == (holds(a, at) && holds(b, at)));
  RC_ASSERT(same(both, intersect(b, a)));
  RC_ASSERT(same(intersect(a, a), a));
  RC_ASSERT(same(intersect(intersect(a, b), c), intersect(a, intersect(b, c))));
}

TEST(Flat, AnExampleByHand) {
  const std::vector<Parameter> parameters = {{"w", {10, 10}, 4}, {"b", {10}, 4}, {"s", {}, 4}};
  const std::vector<std::size_t> order = {2, 0, 1};
  const FlatLayout layout = make_flat_layout(parameters, order, 2);
  EXPECT_EQ(layout.segments[0].offset, 0);    // s: 1 element
  EXPECT_EQ(layout.segments[1].offset, 64);   // w: 100 elements end at 164
  EXPECT_EQ(layout.segments[2].offset, 192);  // b: 10 elements end at 202
  EXPECT_EQ(layout.padded, 256);
  EXPECT_EQ(shard_range(layout, 1).begin, 128);
}

TEST(Flat, AnEmptyListIsAnEmptyBuffer) {
  EXPECT_EQ(make_flat_layout({}, {}, 3).padded, 0);
  EXPECT_EQ(shard_range(make_flat_layout({}, {}, 3), 2).end, 0);
}

TEST(Flat, OverflowAndNegativeSizesAreInputErrors) {
  const std::vector<std::size_t> one = {0};
  const std::vector<std::size_t> two = {0, 1};
  const auto lay = [](std::vector<Parameter> parameters, const std::vector<std::size_t>& order, int world = 2) {
    return make_flat_layout(parameters, order, world);
  };
  EXPECT_THROW(lay({{"p", {1 << 30, 1 << 30, 1 << 30}, 4}}, one), InputError);
  EXPECT_THROW(lay({{"p", {-1, 4}, 4}}, one), InputError);
  EXPECT_THROW(lay({{"p", {max64 - 63}, 4}, {"q", {64}, 4}}, two), InputError);
  EXPECT_THROW(lay({{"p", {max64 - 10}, 4}}, one), InputError);
  EXPECT_EQ((Parameter{"p", {max64, max64, 0}, 4}.numel()), 0);
  EXPECT_THROW((Parameter{"p", {max64}, 4}.bytes()), InputError);
  EXPECT_THROW((Parameter{"p", {3}, 0}.bytes()), InputError);
  try {
    lay({{"wte.weight", {-7, 4}, 4}}, one);
  } catch (const InputError& error) {
    EXPECT_NE(std::string(error.what()).find("'wte.weight' of shape [-7, 4]"), std::string::npos) << error.what();
  }
}

TEST(Flat, ImpossibleCallsAreErrors) {
  const std::vector<Parameter> parameters = {{"p", {3}, 4}};
  const std::vector<std::size_t> twice = {0, 0}, outside = {1}, one = {0};
  EXPECT_THROW(make_flat_layout(parameters, twice, 1), Error);
  EXPECT_THROW(make_flat_layout(parameters, outside, 1), Error);
  EXPECT_THROW(make_flat_layout(parameters, one, 0), Error);
  EXPECT_THROW(make_flat_layout(parameters, one, 1, 0), Error);
  EXPECT_THROW(shard_range(make_flat_layout(parameters, one, 2), 2), Error);
}

}  // namespace
}  // namespace tessera::layout
