#pragma once
/// \file
/// Whether work grows in proportion to its input, without a word about seconds: the same work on an input and on one
/// eight times as large, by the time that this process has on a processor. In proportion is 8 times, with the square
/// 64 times; the limit lies between them, so that caches, pages and sanitizers do not matter.
///
///   EXPECT_LE(growth([&] { parse(small); }, [&] { parse(eight_times_small); }), linear_growth);

#include <algorithm>

#include <tests/stopwatch.h>

namespace tessera::testing {

/// The most that an input eight times as large may cost, times the cost of the small one: in proportion, or with the
/// square.
inline constexpr double linear_growth = 24, square_growth = 192;

/// How many times as much as `small` costs `large`: the least of several interleaved rounds each, as few as show that
/// it is no more than `most`. What takes less than 0.2 ms is taken to need that much: there, pages that the
/// kernel hands out for the first time weigh more than the work.
template <class Small, class Large>
double growth(const Small& small, const Large& large, double most = linear_growth) {
  const auto cost = [](const auto& work) {
    const double begin = seconds_on(CLOCK_PROCESS_CPUTIME_ID);
    work();
    return seconds_on(CLOCK_PROCESS_CPUTIME_ID) - begin;
  };
  double small_cost = 1e9, large_cost = 1e9, ratio = 0;
  for (int round = 0; round < 8 && (round == 0 || ratio > most); ++round) {
    small_cost = std::min(small_cost, cost(small));
    large_cost = std::min(large_cost, cost(large));
    ratio = large_cost / std::max(small_cost, 0.2e-3 * slowness());
  }
  return ratio;
}

}  // namespace tessera::testing
