// The lines of a series that are kept: its ends, its peaks, and never more than a bounded number.

#include <tessera/train/reporting/series_sample.h>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

namespace tessera::train {
namespace {

using Series = SeriesSample<std::size_t, 2>;

struct Point {
  std::int64_t step;
  Series::Numbers peaks;
};

/// Lines with ascending steps; some steps have several lines.
std::vector<Point> any_points() {
  std::vector<Point> points;
  std::int64_t step = 0;
  const auto strides = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40));
  for (const int stride : strides) {
    step += stride;
    const auto number = [] {
      const int n = *rc::gen::inRange(-6, 7);
      return n == 6 ? std::numeric_limits<double>::quiet_NaN() : n;
    };
    points.push_back({step, {number(), number()}});
  }
  return points;
}

void add_all(Series& sample, const std::vector<Point>& points, std::size_t begin = 0) {
  for (std::size_t i = begin; i < points.size(); ++i)
    sample.add(static_cast<std::int64_t>(i), points[i].step, points[i].peaks, i);
}

std::vector<std::size_t> kept(const Series& sample) {
  std::vector<std::size_t> lines;
  for (const auto* one : sample.lines()) lines.push_back(one->line);
  return lines;
}

double height(double number) { return std::isfinite(number) ? number : std::numeric_limits<double>::infinity(); }

RC_GTEST_PROP(SeriesSample, KeepsEndsAndPeaksOfEveryBucketInOrder, ()) {
  const std::int64_t buckets = *rc::gen::inRange(1, 9);
  const std::vector<Point> points = any_points();
  Series sample(buckets);
  add_all(sample, points);
  const std::vector<std::size_t> lines = kept(sample);

  RC_ASSERT(static_cast<std::int64_t>(lines.size()) <= buckets * 4);
  RC_ASSERT(std::is_sorted(lines.begin(), lines.end()));
  RC_ASSERT(std::adjacent_find(lines.begin(), lines.end()) == lines.end());
  if (points.empty()) return;
  RC_ASSERT(lines.front() == 0u);
  RC_ASSERT(lines.back() == points.size() - 1);
  RC_ASSERT(points.back().step / sample.width() < buckets);
  const bool needed = sample.width() == 1 || points.back().step / (sample.width() / 2) >= buckets;
  RC_ASSERT(needed);  // no coarser than necessary

  for (std::size_t begin = 0; begin < points.size();) {
    const auto bucket = [&](std::size_t i) { return points[i].step / sample.width(); };
    std::size_t end = begin;
    while (end < points.size() && bucket(end) == bucket(begin)) ++end;
    const auto stays = [&](std::size_t i) { return std::binary_search(lines.begin(), lines.end(), i); };
    RC_ASSERT(stays(begin));
    RC_ASSERT(stays(end - 1));
    for (std::size_t p = 0; p < 2; ++p) {
      std::size_t peak = begin;
      for (std::size_t i = begin; i < end; ++i)
        if (height(points[i].peaks[p]) > height(points[peak].peaks[p])) peak = i;
      RC_ASSERT(stays(peak));
    }
    begin = end;
  }
}

RC_GTEST_PROP(SeriesSample, WhatHasStayedGoesOnAsTheWhole, ()) {
  const std::int64_t buckets = *rc::gen::inRange(1, 9);
  const std::vector<Point> points = any_points();
  const std::size_t restart = *rc::gen::inRange<std::size_t>(0, points.size() + 1);
  Series whole(buckets), before(buckets), after(buckets);
  add_all(whole, points);
  add_all(before, {points.begin(), points.begin() + static_cast<std::ptrdiff_t>(restart)});
  for (const auto* one : before.lines()) after.add(one->place, one->step, one->peaks, one->line);
  add_all(after, points, restart);
  RC_ASSERT(kept(after) == kept(whole));
}

TEST(SeriesSample, AShortSeriesStaysWhole) {
  Series sample(64);
  for (std::size_t i = 0; i < 64; ++i) sample.add(0, static_cast<std::int64_t>(i), {0, 0}, i);
  EXPECT_EQ(sample.lines().size(), 64u);
  EXPECT_EQ(sample.width(), 1);
}

TEST(SeriesSample, ASpikeOfAHundredThousandLinesIsSeen) {
  Series sample(256);
  for (std::size_t i = 0; i < 100'000; ++i)
    sample.add(0, static_cast<std::int64_t>(i), {i == 77'777 ? 50.0 : 1.0, 0}, i);
  EXPECT_LE(sample.lines().size(), 256u * 4);
  const std::vector<std::size_t> lines = kept(sample);
  EXPECT_TRUE(std::binary_search(lines.begin(), lines.end(), 77'777u));
}

/// Counts moves and destructions of lines.
struct Counted {
  static inline std::int64_t work = 0;
  bool there = true;
  Counted() = default;
  Counted(Counted&& other) noexcept : there(std::exchange(other.there, false)) { ++work; }
  Counted& operator=(Counted&& other) noexcept {
    there = std::exchange(other.there, false);
    ++work;
    return *this;
  }
  ~Counted() { work += there; }
};

TEST(SeriesSample, NoLineCostsMuchMoreThanAnother) {
  for (const std::int64_t stride : {1, 7, 1000}) {
    SeriesSample<Counted, 4> sample(1024);
    std::int64_t most = 0;
    for (std::int64_t i = 0; i < 50'000; ++i) {
      const auto peak = [&](std::int64_t period) { return static_cast<double>(i * 7919 % period); };
      Counted::work = 0;
      sample.add(i, i * stride, {peak(1009), -peak(1013), peak(997), peak(991)}, Counted());
      most = std::max(most, Counted::work);
    }
    EXPECT_LE(sample.lines().size(), 1024u * 6);
    EXPECT_LE(most, 40) << "of three buckets of at most 12 lines, and the new one, with steps " << stride << " apart";
  }
}

}  // namespace
}  // namespace tessera::train
