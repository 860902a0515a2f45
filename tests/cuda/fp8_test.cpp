// Matrices in eight bits on the host's CUDA, compared with the definition of the formats: sizes around a tile's,
// unaligned rows, both types of numbers, non-finite values.
#include <tessera/kernels/cuda/fp8.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>

namespace {

using namespace cuda_tests;
namespace cuda = tessera::kernels::cuda;
using cuda::Fp8;

constexpr float not_a_number = std::numeric_limits<float>::quiet_NaN();
constexpr float infinity = std::numeric_limits<float>::infinity();

/// The number that eight bits represent, by the definitions of the formats (OCP 8-bit Floating Point Specification).
double meant(std::uint8_t bits, Fp8 type) {
  const int mantissa_bits = type == Fp8::e4m3 ? 3 : 2, bias = type == Fp8::e4m3 ? 7 : 15;
  const int exponent = (bits & 0x7f) >> mantissa_bits, mantissa = bits & ((1 << mantissa_bits) - 1);
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if (type == Fp8::e4m3 && (bits & 0x7f) == 0x7f) return not_a_number;
  if (type == Fp8::e5m2 && exponent == 31) return mantissa == 0 ? sign * infinity : not_a_number;
  const double fraction = std::ldexp(mantissa, -mantissa_bits);
  return sign * (exponent == 0 ? std::ldexp(fraction, 1 - bias) : std::ldexp(1 + fraction, exponent - bias));
}

/// The eight bits nearest to x, by comparison with all values of the type; the even one on a tie.
std::uint8_t nearest_bits(float x, Fp8 type) {
  if (std::isnan(x)) return 0x7f;
  const auto most = static_cast<double>(cuda::fp8_most(type));
  const double size = std::min(std::abs(static_cast<double>(x)), most);
  int best = 0;
  for (int bits = 1; bits < 0x7f && meant(static_cast<std::uint8_t>(bits), type) <= most; ++bits) {
    const double here = std::abs(meant(static_cast<std::uint8_t>(bits), type) - size),
                 before = std::abs(meant(static_cast<std::uint8_t>(best), type) - size);
    if (here < before || (here == before && bits % 2 == 0)) best = bits;
  }
  return static_cast<std::uint8_t>(best | (std::signbit(x) ? 0x80 : 0));
}

/// A byte buffer of exactly the required size.
class Bytes {
 public:
  explicit Bytes(std::int64_t count, int shift = 0)
      : count_(count), shift_(shift), bytes_(new std::uint8_t[static_cast<std::size_t>(count + shift)]) {
    std::fill_n(bytes_.get(), count + shift, 0xee);
  }
  std::uint8_t* at(std::int64_t i = 0) const { return bytes_.get() + shift_ + i; }
  std::vector<int> values() const { return {at(), at(count_)}; }

 private:
  std::int64_t count_;
  int shift_;
  std::unique_ptr<std::uint8_t[]> bytes_;
};

struct Case {
  std::int64_t rows, columns;
  Real x = Real::float32;
  Fp8 type = Fp8::e4m3;
  int shift = 0;  ///< offset from the alignment: elements of x, bytes of the results
  std::optional<float> chosen = {};
  float noted = 0;
  bool straight = true, turned = true;
  float margin = 1;
};

struct Result {
  std::vector<int> values, turned;
  float scale = 0, noted = 0;
};

float largest_of(const Doubles& values) {
  float largest = 0;
  for (const double v : values) {
    if (std::isnan(v)) return not_a_number;
    largest = std::max(largest, static_cast<float>(std::abs(v)));
  }
  return largest;
}

Result expected(const Case& c, const Numbers& x) {
  const Doubles values = x.values();
  const float now = largest_of(values), amax = c.chosen.value_or(0) > 0 ? *c.chosen : now;
  float factor = amax > 0 ? cuda::fp8_most(c.type) * c.margin / amax : 1;
  if (!std::isfinite(factor)) factor = 1;
  Result r{std::vector<int>(c.straight ? values.size() : 0), std::vector<int>(c.turned ? values.size() : 0), 1 / factor,
           std::isnan(now) ? now : std::max(c.noted, now)};
  for (std::int64_t i = 0; i < c.rows; ++i) {
    for (std::int64_t j = 0; j < c.columns; ++j) {
      const auto at = static_cast<std::size_t>(i * c.columns + j), across = static_cast<std::size_t>(j * c.rows + i);
      const int bits = nearest_bits(static_cast<float>(values[at]) * factor, c.type);
      if (c.straight) r.values[at] = bits;
      if (c.turned) r.turned[across] = bits;
    }
  }
  return r;
}

Result result(const Case& c, const Numbers& x) {
  const std::int64_t n = c.rows * c.columns;
  Numbers parts(f, cuda::fp8_parts(n)), scale(f, 1), noted(f, Floats{c.noted}), chosen(f, Floats{c.chosen.value_or(0)});
  const Bytes values(n, c.shift), turned(n, c.shift);
  const float* const given = c.chosen ? chosen.floats() : nullptr;
  cuda::fp8_largest(x, given, parts.floats(), n, nullptr);
  cuda::fp8_cast({.x = x,
                  .type = c.type,
                  .most = cuda::fp8_most(c.type) * c.margin,
                  .chosen = given,
                  .parts = parts.floats(),
                  .values = c.straight ? values.at() : nullptr,
                  .turned = c.turned ? turned.at() : nullptr,
                  .scale = scale.floats(),
                  .noted = noted.floats()},
                 c.rows, c.columns, nullptr);
  return {c.straight ? values.values() : std::vector<int>(), c.turned ? turned.values() : std::vector<int>(),
          *scale.floats(), *noted.floats()};
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

void expect_rounded(const Case& c, const Floats& given) {
  const Numbers x(c.x, given, c.shift);
  const Result want = expected(c, x);
  const std::string name = std::to_string(c.rows) + " x " + std::to_string(c.columns) + " types " +
                           std::to_string(int(c.x)) + std::to_string(int(c.type)) + " shift " + std::to_string(c.shift);
  in_each_order([&] {
    const Result got = result(c, x);
    EXPECT_EQ(got.values, want.values) << name;
    EXPECT_EQ(got.turned, want.turned) << name;
    EXPECT_TRUE(same(got.scale, want.scale)) << got.scale << " " << want.scale << " " << name;
    EXPECT_TRUE(same(got.noted, want.noted)) << got.noted << " " << want.noted << " " << name;
  });
}

Floats some(const Case& c) { return reference::random(c.rows * c.columns, 1, 3e-4F); }

TEST(CudaFp8, RoundsAndTransposesMatricesOfAnySize) {
  for (const Fp8 type : {Fp8::e4m3, Fp8::e5m2}) {
    for (const Real x : {f, b}) {
      for (const auto& [rows, columns] : std::vector<std::pair<std::int64_t, std::int64_t>>{
               {1, 1}, {3, 5}, {16, 16}, {4, 132}, {130, 8}, {129, 127}, {33, 260}, {128, 128}, {256, 20}}) {
        const Case c{.rows = rows, .columns = columns, .x = x, .type = type};
        expect_rounded(c, some(c));
      }
      for (const int shift : {1, 2, 4}) {
        const Case c{.rows = 20, .columns = 64, .x = x, .type = type, .shift = shift};
        expect_rounded(c, some(c));
      }
    }
  }
}

TEST(CudaFp8, EitherWayAlone) {
  for (const auto& [straight, turned] : {std::pair(true, false), {false, true}, {false, false}}) {
    for (const std::int64_t columns : {96, 97}) {
      const Case c{.rows = 140, .columns = columns, .x = b, .straight = straight, .turned = turned};
      expect_rounded(c, some(c));
    }
  }
}

// Every exponent, and the midpoints between neighbours.
TEST(CudaFp8, NumbersAreThoseOfTheFormats) {
  Floats numbers = {0, -0.0F, 448, 449, 463.9F, 464, 480, 1e6F, -57344, 61439, 61440, 1e-12F, 1e-40F};
  for (int exponent = -20; exponent <= 17; ++exponent) {
    for (int i = 32; i < 64; ++i) {
      for (const float sign : {1.0F, -1.0F}) numbers.push_back(sign * std::ldexp(static_cast<float>(i), exponent - 5));
    }
  }
  numbers.resize((numbers.size() + 3) / 4 * 4);
  for (const Fp8 type : {Fp8::e4m3, Fp8::e5m2})
    expect_rounded({.rows = 4,
                    .columns = static_cast<std::int64_t>(numbers.size() / 4),
                    .type = type,
                    .chosen = cuda::fp8_most(type)},
                   numbers);
}

TEST(CudaFp8, ScalesAreByTheChosenValueWhereThereIsOne) {
  for (const float chosen : {0.0F, 1e-4F, 5.0F}) {
    for (const float margin : {1.0F, 0.25F}) {
      const Case c{.rows = 33, .columns = 48, .x = b, .chosen = chosen, .noted = 2e-3F, .margin = margin};
      expect_rounded(c, some(c));
    }
  }
}

TEST(CudaFp8, WhatIsNotFinite) {
  for (const Fp8 type : {Fp8::e4m3, Fp8::e5m2}) {
    for (const Real x : {f, b}) {
      for (const std::optional<float> chosen : {std::optional<float>(), std::optional(2.0F)}) {
        const Case c{.rows = 20, .columns = 37, .x = x, .type = type, .chosen = chosen};
        Floats given = some(c);
        given[77] = not_a_number;
        expect_rounded(c, given);
        given[77] = -infinity;
        given[78] = infinity;
        expect_rounded(c, given);
      }
    }
  }
}

TEST(CudaFp8, WithoutALargestValueTheScaleIsOne) {
  const Case c{.rows = 7, .columns = 36};
  expect_rounded(c, Floats(7 * 36, 0));
  expect_rounded(c, Floats(7 * 36, 1e-42F));  // the quotient is infinite
  expect_rounded({.rows = 0, .columns = 4}, {});
  expect_rounded({.rows = 4, .columns = 0}, {});
}

// Several parts, and more numbers than all of them process in one iteration.
TEST(CudaFp8, LargestValuesOfManyParts) {
  for (const std::int64_t n : {4096, 4097, 70001, 4096 * 132 * 4 + 5}) {
    Floats given = reference::random(n, 3);
    given[static_cast<std::size_t>(n - 1)] = -9;
    const Numbers x(b, given);
    Numbers parts(f, cuda::fp8_parts(n));
    cuda::fp8_largest(x, nullptr, parts.floats(), n, nullptr);
    EXPECT_EQ(largest_of(parts.values()), 9) << n;
    EXPECT_EQ(cuda::fp8_parts(n), std::min<std::int64_t>((n + 4095) / 4096, 528));
  }
}

}  // namespace
