// Four and eight bits against a slow reference, the published numbers, and their error bounds.
#include <gtest/gtest.h>

#include "isa.h"
#include "reference.h"

#include <algorithm>
#include <array>
#include <limits>

using namespace tessera::kernels;
using reference::Floats;

namespace {

using Codes = std::vector<std::uint8_t>;

std::size_t blocks_of(std::int64_t n, std::int64_t block) { return static_cast<std::size_t>((n + block - 1) / block); }

struct FourBitForm {
  Codes codes;
  Floats absmax;
};

FourBitForm four_bits(const Table& k, const Floats& x, FourBits type) {
  FourBitForm form{Codes((x.size() + 1) / 2, 0xff), Floats(blocks_of(std::ssize(x), four_bit_block))};
  k.quantize_four_bits(x.data(), std::ssize(x), type, form.codes.data(), form.absmax.data());
  return form;
}
Floats widened(const Table& k, const FourBitForm& form, std::int64_t n, FourBits type) {
  Floats y(static_cast<std::size_t>(n));
  k.dequantize_four_bits(form.codes.data(), form.absmax.data(), n, type, y.data());
  return y;
}
int code_at(const Codes& codes, std::int64_t i) {
  const int byte = codes[static_cast<std::size_t>(i / 2)];
  return i % 2 == 0 ? byte >> 4 : byte & 15;
}
const float* numbers_of(FourBits type) { return type == FourBits::nf4 ? nf4_numbers : fp4_numbers; }

/// The code whose number is nearest to the value, by exhaustive search.
int nearest_code(double value, FourBits type) {
  const float* const numbers = numbers_of(type);
  int best = 0;
  for (int code = 1; code < four_bit_count; ++code)
    if (std::fabs(numbers[code] - value) < std::fabs(numbers[best] - value)) best = code;
  return best;
}

struct Quantize : ::testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

TEST(QuantizeNumbers, AreThosePublished) {
  // Dettmers et al. 2023, appendix E: quantiles of N(0, 1), equally many on either side of an exact 0.
  EXPECT_EQ(nf4_numbers[0], -1);
  EXPECT_EQ(nf4_numbers[7], 0);
  EXPECT_EQ(nf4_numbers[15], 1);
  EXPECT_TRUE(std::is_sorted(std::begin(nf4_numbers), std::end(nf4_numbers)));
  // The quantile function by bisection: create_normal_map(offset = 0.9677083) of bitsandbytes.
  const auto quantile = [](double p) {
    double low = -10, high = 10;
    for (int i = 0; i < 200; ++i)
      (0.5 * std::erfc(-(low + high) / 2 / std::sqrt(2)) < p ? low : high) = (low + high) / 2;
    return low;
  };
  const double offset = 0.9677083, most = quantile(offset);
  for (int i = 0; i < 8; ++i)
    EXPECT_NEAR(nf4_numbers[15 - i], quantile(offset + i * (0.5 - offset) / 8) / most, 2e-6) << i;
  for (int i = 0; i < 7; ++i) EXPECT_NEAR(nf4_numbers[i], -quantile(offset + i * (0.5 - offset) / 7) / most, 2e-6) << i;
  // FP4: a sign, two exponent bits, one mantissa bit, divided by its largest number.
  const std::array<double, 8> sizes = {0, 0.0625, 8, 12, 4, 6, 2, 3};
  for (std::size_t code = 0; code < 8; ++code) {
    EXPECT_FLOAT_EQ(fp4_numbers[code], static_cast<float>(sizes[code] / 12));
    EXPECT_EQ(fp4_numbers[code + 8], -fp4_numbers[code]);
  }
  // The dynamic data type: the numbers of bitsandbytes' create_dynamic_map().
  const float* const dynamic = dynamic_numbers();
  EXPECT_TRUE(std::is_sorted(dynamic, dynamic + dynamic_count));
  EXPECT_FLOAT_EQ(dynamic[0], -0.99296875f);
  EXPECT_FLOAT_EQ(dynamic[1], -0.97890625f);
  EXPECT_FLOAT_EQ(dynamic[126], -5.5e-7f);
  EXPECT_EQ(dynamic[127], 0);
  EXPECT_FLOAT_EQ(dynamic[128], 5.5e-7f);
  EXPECT_FLOAT_EQ(dynamic[129], 3.25e-6f);
  EXPECT_FLOAT_EQ(dynamic[254], 0.99296875f);
  EXPECT_EQ(dynamic[255], 1);
}

TEST_P(Quantize, FourBitsAreTheNearestNumbers) {
  for (const FourBits type : {FourBits::nf4, FourBits::fp4})
    for (const std::int64_t n : {1, 2, 31, 64, 65, 191, 4096, 5001}) {
      const Floats x = reference::random(n, static_cast<unsigned>(n), 0.02f);
      const FourBitForm form = four_bits(k, x, type);
      const Floats y = widened(k, form, n, type);
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        const std::int64_t begin = i / 64 * 64, end = std::min(n, begin + 64);
        float absmax = 0;
        for (std::int64_t j = begin; j < end; ++j) absmax = std::max(absmax, std::fabs(x[static_cast<std::size_t>(j)]));
        ASSERT_EQ(form.absmax[static_cast<std::size_t>(i / 64)], absmax);
        const int code = code_at(form.codes, i), wanted = nearest_code(static_cast<double>(x[at]) / absmax, type);
        ASSERT_EQ(numbers_of(type)[code], numbers_of(type)[wanted]) << i << " of " << n << ": " << x[at] / absmax;
        ASSERT_EQ(y[at], numbers_of(type)[code] * absmax) << i;
        // Half the widest gap between neighbours.
        ASSERT_LE(std::fabs(y[at] - x[at]), (type == FourBits::nf4 ? 0.1520f : 0.1667f) * absmax);
      }
      if (n % 2 == 1) {
        EXPECT_EQ(numbers_of(type)[code_at(form.codes, n)], 0) << "the rest of the last byte";
      }
    }
}

TEST_P(Quantize, BlocksAreAsBitsandbytesHasThem) {
  // Four values of a block with absmax 1: bitsandbytes packs the first of two into the upper half.
  Floats x(64, 0);
  x[0] = 1;      // 15
  x[1] = -1;     // 0
  x[2] = 0.5f;   // between 0.4407 and 0.5626: 0.50166 is halfway
  x[3] = 0.51f;  // above it
  const FourBitForm nf4 = four_bits(k, x, FourBits::nf4);
  EXPECT_EQ(nf4.codes[0], 0xf0);
  EXPECT_EQ(nf4.codes[1], 0xcd);
  EXPECT_EQ(nf4.codes[2], 0x77) << "zeros";
  x[2] = 0.03979014977812767f;  // a tie: the lower one
  EXPECT_EQ(four_bits(k, x, FourBits::nf4).codes[1] >> 4, 7);
  x[2] = 0.2f;   // 2 of 12 is nearer than 3
  x[3] = -0.9f;  // -12 of 12
  const FourBitForm fp4 = four_bits(k, x, FourBits::fp4);
  EXPECT_EQ(fp4.codes[0], 0x3b);
  EXPECT_EQ(fp4.codes[1], 0x6b);
  EXPECT_EQ(fp4.codes[2], 0x00);
}

TEST_P(Quantize, ZerosStayAndWhatIsNotFiniteShows) {
  const float infinity = std::numeric_limits<float>::infinity(), nan = std::numeric_limits<float>::quiet_NaN();
  for (const FourBits type : {FourBits::nf4, FourBits::fp4}) {
    const Floats zeros(70, 0), tiny(64, 1e-40f);
    EXPECT_EQ(widened(k, four_bits(k, zeros, type), 70, type), zeros);
    for (const float y : widened(k, four_bits(k, tiny, type), 64, type)) EXPECT_LE(std::fabs(y), 1e-40f);
    for (const float odd : {infinity, -infinity, nan}) {
      Floats x(128, 0.5f);
      x[70] = odd;
      const FourBitForm form = four_bits(k, x, type);
      EXPECT_EQ(form.absmax[0], 0.5f);
      EXPECT_FALSE(std::isfinite(form.absmax[1]));
    }
  }
  for (const float odd : {infinity, nan}) {
    const Floats x = {1, 2, 3, 4, odd, 5};
    std::vector<std::int8_t> codes(6);
    Floats absmax(2);
    k.quantize_int8_rows(x.data(), 2, 3, codes.data(), absmax.data());
    EXPECT_EQ(absmax[0], 3);
    EXPECT_FALSE(std::isfinite(absmax[1]));
  }
}

TEST_P(Quantize, EightBitsAreRowsOfRoundedValues) {
  for (const std::int64_t columns : {1, 7, 64, 333}) {
    const std::int64_t rows = 5, n = rows * columns;
    Floats x = reference::random(n, static_cast<unsigned>(columns), 0.3f);
    std::fill(x.begin() + columns, x.begin() + 2 * columns, 0.0f);
    std::vector<std::int8_t> codes(static_cast<std::size_t>(n), 99);
    Floats absmax(rows), y(static_cast<std::size_t>(n));
    k.quantize_int8_rows(x.data(), rows, columns, codes.data(), absmax.data());
    k.dequantize_int8_rows(codes.data(), absmax.data(), rows, columns, y.data());
    for (std::int64_t r = 0; r < rows; ++r) {
      double most = 0;
      for (std::int64_t c = 0; c < columns; ++c)
        most = std::max(most, std::fabs(static_cast<double>(x[static_cast<std::size_t>(r * columns + c)])));
      ASSERT_EQ(absmax[static_cast<std::size_t>(r)], static_cast<float>(most));
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto i = static_cast<std::size_t>(r * columns + c);
        const double exact = most > 0 ? x[i] * 127 / most : 0;
        ASSERT_LE(std::fabs(codes[i] - exact), 0.5 + 1e-4) << x[i];
        ASSERT_NEAR(y[i], codes[i] * most / 127, 1e-6 * most);
        ASSERT_LE(std::fabs(y[i] - x[i]), (0.5 + 1e-4) * most / 127);
      }
    }
  }
  const Floats ties = {127, 0.5f, 1.5f, -0.5f, -2.5f, -127};
  std::vector<std::int8_t> codes(6);
  Floats absmax(1);
  k.quantize_int8_rows(ties.data(), 1, 6, codes.data(), absmax.data());
  EXPECT_EQ(codes, (std::vector<std::int8_t>{127, 0, 2, 0, -2, -127})) << "ties to even";
}

TEST_P(Quantize, EveryInstructionSetGivesTheSameBits) {
  const std::int64_t n = 64 * 37 + 5;
  const Floats x = reference::random(n, 3, 0.05f);
  const Table& plain = table(Isa::baseline);
  for (const FourBits type : {FourBits::nf4, FourBits::fp4}) {
    const FourBitForm form = four_bits(k, x, type), other = four_bits(plain, x, type);
    EXPECT_EQ(form.codes, other.codes);
    EXPECT_EQ(form.absmax, other.absmax);
    EXPECT_EQ(widened(k, form, n, type), widened(plain, form, n, type));
  }
}

TEST(QuantizeDynamic, IsTheNearestNumberTimesTheLargestOfItsBlock) {
  for (const std::int64_t n : {1, 255, 256, 1000}) {
    const auto size = static_cast<std::size_t>(n);
    const Floats x = reference::random(n, static_cast<unsigned>(n), 0.01f);
    Codes codes(size);
    Floats absmax(blocks_of(n, dynamic_block)), y(size), part(size);
    quantize_dynamic(x.data(), n, codes.data(), absmax.data());
    dequantize_dynamic(codes.data(), absmax.data(), 0.25f, 0, n, y.data());
    for (std::size_t i = 0; i < size; ++i) {
      const float most = absmax[i / 256];
      float nearest = 2;
      for (int code = 0; code < dynamic_count; ++code)
        if (std::fabs(dynamic_numbers()[code] - x[i] / most) < std::fabs(nearest - x[i] / most))
          nearest = dynamic_numbers()[code];
      ASSERT_NEAR(y[i] - 0.25f, nearest * most, 1e-7) << i;
      ASSERT_LE(std::fabs(y[i] - 0.25f - x[i]), 0.00704f * most + 1e-7f) << "half the widest gap";
    }
    for (std::int64_t first = 0; first < n; first += 100) {  // processing in parts gives the same result
      const std::int64_t count = std::min<std::int64_t>(100, n - first);
      dequantize_dynamic(codes.data(), absmax.data(), 0.25f, first, count, part.data() + first);
    }
    EXPECT_EQ(part, y);
  }
}

INSTANTIATE_TEST_SUITE_P(Isas, Quantize, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
