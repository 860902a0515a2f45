// Random numbers by position: every instruction set draws the same ones, and they look random along and across lines.
#include <gtest/gtest.h>

#include "isa.h"
#include "reference.h"

#include <cmath>

using namespace tessera::kernels;
using reference::Floats;

namespace {

struct DropoutKernels : ::testing::TestWithParam<Isa> {
  const Table& k = table(GetParam());
};

TEST_P(DropoutKernels, are_the_published_function_wherever_a_line_is_cut) {
  const std::int64_t n = 1000;
  const std::uint64_t key = 0x0123456789abcdefu;
  const std::uint32_t limit = 1u << 30;
  const Floats x = reference::random(n, 3);
  Floats whole(n), parts(n), numbers(n);
  k.dropout(x.data(), whole.data(), n, key, 5, limit, 1.25f);
  for (std::int64_t begin = 0; begin < n; begin += 77)
    k.dropout(x.data() + begin, parts.data() + begin, std::min<std::int64_t>(77, n - begin), key,
              static_cast<std::uint32_t>(5 + begin), limit, 1.25f);
  EXPECT_EQ(whole, parts);
  k.uniform(numbers.data(), n, key, 5);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t number = random_number(key, static_cast<std::uint32_t>(5 + i));
    EXPECT_EQ(whole[i], number < limit ? 0.0f : x[i] * 1.25f);
    EXPECT_EQ(numbers[i], static_cast<float>(number >> 8) / 16777216.0f);
  }
}

/// Sums of `count` independent numbers of mean 0 and variance `variance` stay within 5 standard deviations.
void expect_zero(double sum, double count, double variance, const char* what) {
  EXPECT_LT(std::abs(sum), 5 * std::sqrt(count * variance)) << what;
}

TEST_P(DropoutKernels, are_uniform_and_independent_of_their_neighbours) {
  const std::int64_t lines = 512, columns = 1024;
  std::vector<Floats> u;
  for (std::int64_t line = 0; line < lines; ++line) {
    u.emplace_back(columns);
    k.uniform(u.back().data(), columns, mixed_key(mixed_key(7, 1), static_cast<std::uint64_t>(line)), 0);
  }
  double mean = 0, square = 0, along = 0, across = 0, distant = 0;
  std::vector<double> bins(256, 0);
  for (std::int64_t l = 1; l < lines; ++l)
    for (std::int64_t c = 32; c < columns; ++c) {
      const double x = u[l][c] - 0.5;
      mean += x;
      square += x * x - 1.0 / 12;
      along += x * (u[l][c - 1] - 0.5);
      across += x * (u[l - 1][c] - 0.5);
      distant += x * (u[l][c - 32] - 0.5);
      ++bins[static_cast<std::size_t>(u[l][c] * 256)];
    }
  const double n = static_cast<double>((lines - 1) * (columns - 32));
  expect_zero(mean, n, 1.0 / 12, "mean");
  expect_zero(square, n, 1.0 / 180, "variance");
  expect_zero(along, n, 1.0 / 144, "neighbours in a line");
  expect_zero(across, n, 1.0 / 144, "the same column of the next line");
  expect_zero(distant, n, 1.0 / 144, "columns 32 apart");
  double chi = 0;
  for (const double count : bins) chi += (count - n / 256) * (count - n / 256) / (n / 256);
  EXPECT_LT(std::abs(chi - 255), 5 * std::sqrt(2 * 255.0));
}

TEST(DropoutKeys, differ_for_every_pair) {
  EXPECT_NE(mixed_key(1, 2), mixed_key(2, 1));
  EXPECT_NE(mixed_key(0, 0), 0u);
  EXPECT_NE(mixed_key(mixed_key(5, 0), 1), mixed_key(mixed_key(5, 1), 0));
}

INSTANTIATE_TEST_SUITE_P(Isa, DropoutKernels, ::testing::ValuesIn(runnable()), name_of);

}  // namespace
