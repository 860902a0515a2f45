#include <tessera/base/half.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tessera {
namespace {

double f16_value(int bits) {
  const int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  const double sign = bits & 0x8000 ? -1 : 1;
  if (exponent == 31) return mantissa != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  return sign * (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(Half, EveryF16IsReadAndWrittenExactly) {
  for (int bits = 0; bits < 65536; ++bits) {
    const float value = from_f16(static_cast<std::uint16_t>(bits));
    const double expected = f16_value(bits);
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(value)) << bits;
      EXPECT_TRUE(std::isnan(from_f16(to_f16(value)))) << bits;
      continue;
    }
    ASSERT_EQ(value, expected) << bits;
    ASSERT_EQ(to_f16(value), bits);
  }
}

TEST(Half, RoundsToNearestAndTiesToEven) {
  for (int bits = 0; bits < 0x7BFF; ++bits) {  // between each finite positive f16 and the next one
    const double low = f16_value(bits), high = f16_value(bits + 1);
    const auto middle = static_cast<float>((low + high) / 2);
    ASSERT_EQ(to_f16(middle), bits + (bits & 1));
    ASSERT_EQ(to_f16(std::nextafter(middle, 0.0f)), bits);
    ASSERT_EQ(to_f16(std::nextafter(middle, 1e9f)), bits + 1);
    ASSERT_EQ(to_f16(-std::nextafter(middle, 0.0f)), 0x8000 | bits);
  }
  EXPECT_EQ(to_f16(65519.996f), 0x7BFF);
  EXPECT_EQ(to_f16(65520.0f), 0x7C00);
  EXPECT_EQ(to_f16(1e-10f), 0);
  EXPECT_EQ(to_bf16(1.0f), 0x3F80);
  EXPECT_EQ(to_bf16(from_bf16(0x3F80) * (1 + 0x1p-8f)), 0x3F80);   // a tie: to even
  EXPECT_EQ(to_bf16(from_bf16(0x3F81) * 1.0f + 0x1p-8f), 0x3F82);  // a tie: to even, up
  EXPECT_EQ(to_bf16(1 + 0x1.8p-8f), 0x3F81);
  EXPECT_TRUE(std::isnan(from_bf16(to_bf16(std::numeric_limits<float>::quiet_NaN()))));
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::infinity()), 0x7F80);
}

}  // namespace
}  // namespace tessera
