// Eight-bit states against the published numbers, an exhaustive search for the nearest number, and updates in double.
#include <gtest/gtest.h>

#include "isa.h"
#include "reference.h"

#include <algorithm>
#include <cstring>
#include <limits>

using namespace tessera::kernels;
using reference::Floats;

namespace {

constexpr EightBitMap maps[] = {EightBitMap::with_sign, EightBitMap::without_sign};

struct Encoded {
  std::vector<std::uint8_t> codes;
  Floats scales;
  EightBits bits() { return {codes.data(), scales.data()}; }
  bool operator==(const Encoded& other) const {
    return codes == other.codes && std::equal(scales.begin(), scales.end(), other.scales.begin(), other.scales.end(),
                                              [](float a, float b) { return std::memcmp(&a, &b, sizeof a) == 0; });
  }
};

Encoded empty(std::int64_t n) {
  return {std::vector<std::uint8_t>(static_cast<std::size_t>(n), 3), Floats(static_cast<std::size_t>((n + 63) / 64))};
}
Encoded encoded(const Table& k, const Floats& x, EightBitMap map) {
  Encoded form = empty(std::ssize(x));
  k.encode_eight_bits(x.data(), std::ssize(x), map, form.bits());
  return form;
}
Floats decoded(const Table& k, Encoded form, EightBitMap map) {
  Floats y(form.codes.size());
  k.decode_eight_bits(form.bits(), std::ssize(y), map, y.data());
  return y;
}

/// Values over nine decades, as in gradients; squared for the unsigned map.
Floats wide_values(std::int64_t n, unsigned seed, EightBitMap map) {
  const Floats decades = reference::random(n, seed, 2.5f), signs = reference::random(n, seed + 1);
  Floats x(decades.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = std::pow(10.0f, decades[i] - 3);
    if (map == EightBitMap::with_sign && signs[i] < 0) x[i] = -x[i];
  }
  return x;
}

/// The slow reference: searches all numbers.
std::uint8_t nearest(double value, EightBitMap map) {
  const float* const numbers = eight_bit_numbers(map);
  int best = 0;
  for (int code = 1; code < eight_bit_count; ++code)
    if (std::fabs(numbers[code] - value) < std::fabs(numbers[best] - value)) best = code;
  return static_cast<std::uint8_t>(best);
}

struct EightBitKernels : ::testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

// create_dynamic_map(signed, max_exponent_bits = 7, total_bits = 8) of bitsandbytes, from its rule: for i in 0..6 the
// means of neighbours in linspace(0.1, 1, 2^i + 1) (unsigned: 2^(i+1) + 1) times 10^(i-6), with both signs; 0; 1.
TEST(EightBitNumbers, AreThoseOfBitsandbytes) {
  for (const EightBitMap map : maps) {
    const bool with_sign = map == EightBitMap::with_sign;
    std::vector<double> expected = {0, 1};
    for (int i = 0; i < 7; ++i) {
      const int points = (with_sign ? 1 << i : 2 << i) + 1;
      const auto point = [&](int j) { return 0.1 + (1 - 0.1) * j / (points - 1); };
      for (int j = 0; j + 1 < points; ++j) {
        const double mean = (point(j) + point(j + 1)) / 2 * std::pow(10.0, i - 6);
        expected.push_back(mean);
        if (with_sign) expected.push_back(-mean);
      }
    }
    std::sort(expected.begin(), expected.end());
    ASSERT_EQ(expected.size(), static_cast<std::size_t>(eight_bit_count));
    const float* const numbers = eight_bit_numbers(map);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(numbers[i], expected[i], 1e-7 * std::fabs(expected[i])) << i;
  }
  // Some of them as bitsandbytes prints them.
  EXPECT_FLOAT_EQ(eight_bit_numbers(EightBitMap::with_sign)[0], -0.99296875f);
  EXPECT_FLOAT_EQ(eight_bit_numbers(EightBitMap::with_sign)[128], 5.5e-7f);
  EXPECT_FLOAT_EQ(eight_bit_numbers(EightBitMap::without_sign)[1], 3.25e-7f);
  EXPECT_FLOAT_EQ(eight_bit_numbers(EightBitMap::without_sign)[254], 0.996484375f);
}

TEST_P(EightBitKernels, CodesAreTheNearest) {
  for (const EightBitMap map : maps)
    for (const std::int64_t n : {1, 63, 64, 65, 1000, 64000}) {
      const Floats x = wide_values(n, 7, map);
      const Encoded form = encoded(k, x, map);
      for (std::size_t begin = 0; begin < x.size(); begin += 64) {
        const std::size_t end = std::min(x.size(), begin + 64);
        const double scale = form.scales[begin / 64];
        const float largest = *std::max_element(x.begin() + static_cast<std::ptrdiff_t>(begin),
                                                x.begin() + static_cast<std::ptrdiff_t>(end),
                                                [](float a, float b) { return std::fabs(a) < std::fabs(b); });
        ASSERT_EQ(scale, largest);
        for (std::size_t i = begin; i < end; ++i) {
          const float* const numbers = eight_bit_numbers(map);
          const double value = x[i] / scale, found = std::fabs(numbers[form.codes[i]] - value);
          const double least = std::fabs(numbers[nearest(value, map)] - value);
          ASSERT_LE(found, least + 1e-6 * std::fabs(value)) << value << " became " << numbers[form.codes[i]];
        }
      }
    }
}

// Every number, and every boundary between two numbers, from both sides.
TEST_P(EightBitKernels, EveryCodeIsReached) {
  for (const EightBitMap map : maps) {
    const float* const numbers = eight_bit_numbers(map);
    for (int code = 0; code < eight_bit_count; ++code) {
      const double number = numbers[code];
      std::vector<double> probes = {number};
      if (code > 0) probes.push_back(number + (numbers[code - 1] - number) * 0.4999);
      if (code < 255) probes.push_back(number + (numbers[code + 1] - number) * 0.4999);
      for (const double probe : probes)
        EXPECT_EQ(encoded(k, {1, static_cast<float>(probe)}, map).codes[1], code) << probe;
    }
  }
}

TEST_P(EightBitKernels, WhatWasDecodedIsEncodedAsItWas) {
  for (const EightBitMap map : maps)
    for (const float unit : {1.0f, 1e-7f, 3e-22f, 1e20f}) {
      Floats x = wide_values(6400, 11, map);
      for (float& value : x) value *= unit;
      for (std::size_t i = 0; i < 64; ++i) x[i] = i % 3 == 0 && map == EightBitMap::with_sign ? -unit : unit;  // ties
      std::fill(x.begin() + 64, x.begin() + 128, 0.0f);
      const Encoded once = encoded(k, x, map);
      const Floats values = decoded(k, once, map);
      EXPECT_EQ(encoded(k, values, map), once) << unit;
      EXPECT_EQ(decoded(k, encoded(k, values, map), map), values) << unit;
    }
}

TEST_P(EightBitKernels, ErrorsAreSmall) {
  for (const EightBitMap map : maps) {
    const Floats x = wide_values(64000, 5, map), y = decoded(k, encoded(k, x, map), map);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const Floats block(x.begin() + static_cast<std::ptrdiff_t>(i / 64 * 64),
                         x.begin() + static_cast<std::ptrdiff_t>(i / 64 * 64 + 64));
      double most = 0;
      for (const float value : block) most = std::max<double>(most, std::fabs(value));
      // In the top decade the error is at most half of 0.9 / 64 of the scale. Each lower decade has half the steps for
      // a tenth of the range, so its errors are smaller.
      EXPECT_LE(std::fabs(x[i] - y[i]), most * 0.45 / 64 * 1.001);
    }
  }
}

TEST_P(EightBitKernels, ZerosTinyAndOddNumbers) {
  for (const EightBitMap map : maps) {
    for (const float value : {0.0f, 1e-31f, 1e-40f}) {
      const Encoded form = encoded(k, Floats(70, value), map);
      EXPECT_EQ(form.scales, Floats(2, 0.0f));
      EXPECT_EQ(decoded(k, form, map), Floats(70, 0.0f));
      EXPECT_EQ(eight_bit_numbers(map)[form.codes[0]], 0);
    }
    for (const float odd : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Floats x(130, 1.0f);
      x[100] = odd;
      const Floats y = decoded(k, encoded(k, x, map), map);
      for (std::size_t i = 0; i < y.size(); ++i)
        EXPECT_EQ(std::isnan(y[i]), i >= 64 && i < 128) << i;  // no other block is affected
    }
  }
}

TEST_P(EightBitKernels, UpdatesAreThoseOfDecodedStates) {
  const std::int64_t n = 64 * 50 + 17;
  for (const bool l2 : {false, true}) {
    const AdamwArgs a{
        .learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7, .step = 3, .decay_in_gradient = l2};
    const Floats g = wide_values(n, 20, EightBitMap::with_sign);
    Floats p = reference::random(n, 1);
    Encoded m = encoded(k, wide_values(n, 21, EightBitMap::with_sign), EightBitMap::with_sign);
    Encoded v = encoded(k, wide_values(n, 22, EightBitMap::without_sign), EightBitMap::without_sign);
    Floats m2 = decoded(k, m, EightBitMap::with_sign), v2 = decoded(k, v, EightBitMap::without_sign), p2 = p;
    auto p3 = reference::doubles(p), m3 = reference::doubles(m2), v3 = reference::doubles(v2);
    k.adamw_eight_bits(p.data(), g.data(), m.bits(), v.bits(), n, a);
    k.adamw(p2.data(), g.data(), m2.data(), v2.data(), n, a);
    EXPECT_EQ(p, p2);
    EXPECT_EQ(m, encoded(k, m2, EightBitMap::with_sign));
    EXPECT_EQ(v, encoded(k, v2, EightBitMap::without_sign));
    reference::adamw(p3, reference::doubles(g), m3, v3, a);
    EXPECT_LT(reference::error(p, p3), 1e-5);
  }
  const LionArgs a{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7};
  const Floats g = reference::random(n, 30);
  Floats p = reference::random(n, 2);
  Encoded m = encoded(k, reference::random(n, 31), EightBitMap::with_sign);
  Floats m2 = decoded(k, m, EightBitMap::with_sign), p2 = p;
  k.lion_eight_bits(p.data(), g.data(), m.bits(), n, a);
  k.lion(p2.data(), g.data(), m2.data(), n, a);
  EXPECT_EQ(p, p2);
  EXPECT_EQ(m, encoded(k, m2, EightBitMap::with_sign));
}

TEST_P(EightBitKernels, BitsDoNotDependOnCuts) {
  const std::int64_t n = 64 * 9 + 5;
  const Floats g = reference::random(n, 3), start = reference::random(n, 4);
  for (const std::int64_t cut : {64, 320, 576}) {
    Floats p = start, q = start;
    Encoded m = encoded(k, Floats(static_cast<std::size_t>(n)), EightBitMap::with_sign), m2 = m;
    Encoded v = encoded(k, Floats(static_cast<std::size_t>(n)), EightBitMap::without_sign), v2 = v;
    for (int step = 1; step <= 3; ++step) {
      const AdamwArgs a{.step = step};
      k.adamw_eight_bits(p.data(), g.data(), m.bits(), v.bits(), n, a);
      k.adamw_eight_bits(q.data(), g.data(), m2.bits(), v2.bits(), cut, a);
      k.adamw_eight_bits(q.data() + cut, g.data() + cut, {m2.codes.data() + cut, m2.scales.data() + cut / 64},
                         {v2.codes.data() + cut, v2.scales.data() + cut / 64}, n - cut, a);
    }
    EXPECT_EQ(p, q);
    EXPECT_EQ(m, m2);
    EXPECT_EQ(v, v2);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, EightBitKernels, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
