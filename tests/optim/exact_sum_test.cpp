// ExactSum against 128-bit integers, and against itself in different orders.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <tessera/base/error.h>
#include <tessera/optim/exact_sum.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace {

using tessera::optim::ExactSum;

constexpr double infinity = std::numeric_limits<double>::infinity();

double sum_of(const std::vector<double>& values) {
  ExactSum sum;
  sum.add(values);
  return sum.value();
}

TEST(ExactSum, single_numbers_come_back) {
  std::mt19937_64 engine(1);
  for (int i = 0; i < 20000; ++i) {
    const auto bits = engine();
    double x;
    std::memcpy(&x, &bits, sizeof x);
    if (!std::isfinite(x)) continue;
    EXPECT_EQ(sum_of({x}), x);
    EXPECT_EQ(sum_of({x, x}), 2 * x);
    EXPECT_EQ(sum_of({x, -x}), 0);
  }
  for (const double x : {0.0, 1.0, -1.0, 5e-324, -5e-324, std::numeric_limits<double>::min(),
                         std::numeric_limits<double>::max(), -std::numeric_limits<double>::max()})
    EXPECT_EQ(sum_of({x}), x);
}

TEST(ExactSum, loses_nothing) {
  EXPECT_EQ(sum_of({1e308, 1, -1e308}), 1);
  EXPECT_EQ(sum_of({1e308, 1e308, -1e308, -1e308, 5e-324}), 5e-324);
  EXPECT_EQ(sum_of({0x1p53, 1, 1}), 0x1p53 + 2);
  EXPECT_EQ(sum_of(std::vector<double>(10, 0.1)), 1);  // ten times the double next to 0.1 rounds to 1
  EXPECT_EQ(sum_of({}), 0);
}

TEST(ExactSum, rounds_once_to_nearest_even) {
  const double ulp = 0x1p-52;
  EXPECT_EQ(sum_of({1, ulp / 2}), 1);                  // a tie, to even
  EXPECT_EQ(sum_of({1 + ulp, ulp / 2}), 1 + 2 * ulp);  // a tie, to even
  EXPECT_EQ(sum_of({1, ulp / 2, 5e-324}), 1 + ulp);    // just above a tie
  EXPECT_EQ(sum_of({1, ulp / 2, -5e-324}), 1);         // just below
  EXPECT_EQ(sum_of({-1, -ulp / 2, -5e-324}), -1 - ulp);
  const double most = std::numeric_limits<double>::max();
  EXPECT_EQ(sum_of({most, most}), infinity);
  EXPECT_EQ(sum_of({-most, -most}), -infinity);
  EXPECT_EQ(sum_of({most, most, -most}), most);
  EXPECT_EQ(sum_of({most, 0x1p969}), most);
  EXPECT_EQ(sum_of({most, 0x1p970}), infinity);  // half a unit above the largest double: the tie rounds to 2^1024
}

/// Multiples of 2^-60 below 2^40: sums of thousands are exact in 128 bits.
std::vector<double> fixed_point(std::uint64_t seed, std::size_t count) {
  std::mt19937_64 engine(seed);
  std::vector<double> values;
  for (std::size_t i = 0; i < count; ++i) {
    const int low = static_cast<int>(engine() % 48);
    const auto mantissa = static_cast<double>(static_cast<std::int64_t>(engine()) >> 11);  // 53 bits, with sign
    values.push_back(std::ldexp(mantissa, low - 60));
  }
  return values;
}

/// A 128-bit multiple of 2^-60, rounded to double by hand.
double rounded(__int128 fixed) {
  const bool negative = fixed < 0;
  auto rest = static_cast<unsigned __int128>(negative ? -fixed : fixed);
  int shift = 0;
  bool sticky = false;
  while (rest >> 54 != 0) {  // 53 bits and one for rounding
    sticky = sticky || (rest & 1) != 0;
    rest >>= 1;
    ++shift;
  }
  auto mantissa = static_cast<std::uint64_t>(rest);
  if (mantissa >> 53 != 0) {
    const bool half = (mantissa & 1) != 0;
    mantissa >>= 1;
    ++shift;
    if (half && (sticky || (mantissa & 1) != 0)) ++mantissa;
  }
  const double x = std::ldexp(static_cast<double>(mantissa), shift - 60);
  return negative ? -x : x;
}

RC_GTEST_PROP(ExactSumProperty, is_the_sum_in_integers, (std::uint64_t seed)) {
  const auto values = fixed_point(seed, *rc::gen::inRange<std::size_t>(0, 300));
  __int128 fixed = 0;
  for (const double x : values) fixed += static_cast<__int128>(std::ldexp(x, 60));
  RC_ASSERT(sum_of(values) == rounded(fixed));
}

RC_GTEST_PROP(ExactSumProperty, order_and_sharing_out_do_not_matter, (std::uint64_t seed)) {
  std::mt19937_64 engine(seed);
  std::vector<double> values(*rc::gen::inRange<std::size_t>(1, 200));
  for (double& x : values)
    x = std::ldexp(std::uniform_real_distribution<double>(-1, 1)(engine), static_cast<int>(engine() % 2000) - 1000);
  const double expected = sum_of(values);
  std::shuffle(values.begin(), values.end(), engine);
  RC_ASSERT(sum_of(values) == expected);

  const std::size_t parts = *rc::gen::inRange<std::size_t>(1, 9);
  std::vector<ExactSum> sums(parts);
  for (const double x : values) sums[engine() % parts].add(x);
  ExactSum merged;
  std::vector<std::int64_t> words(ExactSum::word_count);
  for (const ExactSum& sum : sums) {
    merged.merge(sum);
    const auto own = sum.words();
    for (std::size_t i = 0; i < words.size(); ++i) {
      RC_ASSERT(std::abs(own[i]) < std::int64_t{1} << 32);
      words[i] += own[i];
    }
  }
  RC_ASSERT(merged.value() == expected);
  RC_ASSERT(ExactSum::of_words(words).value() == expected);
}

TEST(ExactSum, words_of_65536_ranks_may_be_added) {
  ExactSum sum;
  for (const double x : {std::numeric_limits<double>::max(), -1e-300, 3.7, -5e-324}) sum.add(x);
  auto words = sum.words();
  std::vector<double> as_doubles(words.size());
  for (int rank = 0; rank < 1 << 16; ++rank)
    for (std::size_t i = 0; i < words.size(); ++i) as_doubles[i] += static_cast<double>(words[i]);
  for (std::size_t i = 0; i < words.size(); ++i) {
    words[i] *= 1 << 16;
    EXPECT_EQ(static_cast<double>(words[i]), as_doubles[i]);
  }
  auto total = ExactSum::of_words(words);
  for (int i = 0; i < (1 << 16) - 1; ++i) total.add(-std::numeric_limits<double>::max());
  total.add(-std::numeric_limits<double>::max());
  EXPECT_EQ(total.value(), 65536 * 3.7);
}

TEST(ExactSum, many_additions_carry_in_time) {
  ExactSum sum;
  const std::vector<double> ones(1 << 12, 1 - 0x1p-53);
  for (int i = 0; i < 1 << 12; ++i) sum.add(ones);
  EXPECT_EQ(sum.value(), (1 - 0x1p-53) * 0x1p24);
  ExactSum doubled = sum;
  for (int i = 0; i < 40; ++i) {
    const ExactSum copy = doubled;
    doubled.merge(copy);
  }
  EXPECT_EQ(doubled.value(), (1 - 0x1p-53) * 0x1p64);
}

TEST(ExactSum, what_is_not_finite_stays_visible) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_TRUE(std::isnan(sum_of({1, nan, 2})));
  EXPECT_TRUE(std::isnan(sum_of({infinity, -infinity})));
  EXPECT_EQ(sum_of({infinity, 1, infinity}), infinity);
  EXPECT_EQ(sum_of({-infinity, 1}), -infinity);
  ExactSum here, there;
  here.add(1);
  there.add(std::vector<double>(1000, infinity));
  auto words = here.words();
  for (std::size_t i = 0; i < words.size(); ++i) words[i] += there.words()[i];
  EXPECT_EQ(ExactSum::of_words(words).value(), infinity);
  here.merge(there);
  EXPECT_EQ(here.value(), infinity);
  EXPECT_THROW(ExactSum::of_words(std::vector<std::int64_t>(3)), tessera::Error);
}

}  // namespace
