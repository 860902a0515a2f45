#pragma once
/// \file
/// Tests that work grows linearly with its input, without a limit in seconds: compares the CPU time of the same work on
/// an input and on one eight times as large. Linear work takes 8 times as long, quadratic work 64 times; the limit is
/// in between, so that caches, pages and sanitizers do not matter.
///
///   EXPECT_LE(growth([&] { parse(small); }, [&] { parse(eight_times_small); }), linear_growth);

#include <algorithm>

#include <tests/stopwatch.h>

namespace tessera::testing {

/// Largest allowed ratio of the cost of an input eight times as large to that of the small one: for linear and for
/// quadratic work.
inline constexpr double linear_growth = 24, square_growth = 192;

/// Returns the cost of `large` divided by that of `small`. Each cost is the minimum over interleaved rounds, which end
/// as soon as the ratio is at most `most`. A cost of `small` below 0.2 ms counts as 0.2 ms, because first-touch page
/// faults would outweigh such short work.
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
