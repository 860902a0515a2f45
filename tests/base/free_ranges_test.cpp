#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/free_ranges.h>

#include <vector>

namespace {

using tessera::FreeRanges;

TEST(FreeRanges, the_lowest_that_fits_is_taken_and_neighbours_merge) {
  FreeRanges free;
  free.give(0, 100);
  EXPECT_EQ(free.take(30), 0);
  EXPECT_EQ(free.take(30), 30);
  EXPECT_EQ(free.take(50), std::nullopt);
  free.give(0, 30);
  EXPECT_EQ(free.take(40), 60);
  EXPECT_EQ(free.take(20), 0);
  free.give(30, 30);
  free.give(0, 20);
  free.give(60, 40);
  EXPECT_EQ(free.ranges(), (std::map<std::int64_t, std::int64_t>{{0, 100}}));
  free.give(100, 0);
  EXPECT_EQ(free.ranges().size(), 1u);
}

RC_GTEST_PROP(FreeRanges, nothing_is_given_twice_and_nothing_is_lost, ()) {
  constexpr std::int64_t size = 64;
  FreeRanges free;
  free.give(0, size);
  std::vector<bool> used(size, false);
  std::vector<std::pair<std::int64_t, std::int64_t>> pieces;
  for (const int event : *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 40))) {
    if (event < 20) {
      const std::int64_t n = event + 1;
      const auto begin = free.take(n);
      if (!begin) continue;
      for (std::int64_t i = *begin; i < *begin + n; ++i) {
        RC_ASSERT(!used[static_cast<std::size_t>(i)]);
        used[static_cast<std::size_t>(i)] = true;
      }
      pieces.emplace_back(*begin, n);
    } else if (!pieces.empty()) {
      const auto place = pieces.begin() + event % static_cast<int>(pieces.size());
      for (std::int64_t i = place->first; i < place->first + place->second; ++i)
        used[static_cast<std::size_t>(i)] = false;
      free.give(place->first, place->second);
      pieces.erase(place);
    }
    std::int64_t room = 0, end = -1;
    for (const auto& [begin, n] : free.ranges()) {
      RC_ASSERT(begin > end);  // sorted, with a gap in between
      end = begin + n;
      room += n;
    }
    std::int64_t taken = 0;
    for (const auto& piece : pieces) taken += piece.second;
    RC_ASSERT(room + taken == size);
  }
}

}  // namespace
