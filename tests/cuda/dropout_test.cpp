// Dropout and uniform numbers by position: the formulas of kernels/cpu/dropout.h, element by element.
#include <tessera/kernels/cpu/dropout.h>
#include <tessera/kernels/cuda/dropout.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <vector>

namespace tessera::kernels::cuda {
namespace {

using cuda_tests::Doubles;
using cuda_tests::Floats;
using cuda_tests::in_each_order;
using cuda_tests::nearest;
using cuda_tests::Numbers;

/// The number of each element.
std::vector<std::uint32_t> numbers(const RandomLines& l) {
  std::vector<std::uint32_t> all;
  for (std::int64_t row = 0; row < l.rows; ++row) {
    for (std::int64_t head = 0; head < std::max<std::int64_t>(l.heads, 1); ++head) {
      for (std::int64_t token = 0; token < l.tokens; ++token) {
        const std::int64_t position = l.positions != nullptr ? l.positions[token] : l.token + token;
        std::uint64_t key = mixed_key(l.key, static_cast<std::uint64_t>(l.row + row));
        key = mixed_key(key, static_cast<std::uint64_t>(position));
        if (l.heads > 0) key = mixed_key(key, static_cast<std::uint64_t>(l.head + head));
        for (std::int64_t c = 0; c < l.columns; ++c) {
          const std::int64_t column = l.column_positions != nullptr ? l.column_positions[c] : l.column + c;
          all.push_back(random_number(key, static_cast<std::uint32_t>(column)));
        }
      }
    }
  }
  return all;
}

constexpr std::uint32_t limit = 0x50000000;  // drops 5 of 16
constexpr float scale = 16.0F / 11;

Doubles expected(const Floats& x, const std::vector<std::uint32_t>& numbers, Real type) {
  Doubles y;
  for (std::size_t i = 0; i < x.size(); ++i)
    y.push_back(numbers[i] < limit ? 0 : nearest(nearest(x[i], type) * scale, type));
  return y;
}

void expect_dropped(const RandomLines& lines) {
  const std::vector<std::uint32_t> all = numbers(lines);
  const Floats x = reference::random(static_cast<std::int64_t>(all.size()), 3);
  for (const Real type : {Real::float32, Real::bfloat16}) {
    for (const int shift : {0, 1}) {
      in_each_order([&] {
        Numbers from(type, x, shift), to(type, static_cast<std::int64_t>(x.size()), shift);
        dropout(from.read(), to.write(), lines, limit, scale, nullptr);
        EXPECT_EQ(to.values(), expected(x, all, type)) << lines.columns << " columns";
        dropout(from.read(), from.write(), lines, limit, scale, nullptr);
        EXPECT_EQ(from.values(), to.values()) << "in place";
      });
    }
  }
}

TEST(CudaDropout, HasTheNumbersOfTheCpu) {
  for (const std::int64_t columns : {1, 31, 32, 33, 127, 128, 129, 300}) {
    expect_dropped({.rows = 3, .tokens = 5, .columns = columns, .key = 77, .row = 4, .token = 9, .column = 70});
  }
}

TEST(CudaDropout, PositionsThatAreNotConsecutive) {
  const std::vector<std::int64_t> positions = {3, 0, 100, 7, 6}, columns = {5, 4, 300};
  expect_dropped({.rows = 2,
                  .tokens = 5,
                  .columns = 3,
                  .key = 1,
                  .positions = positions.data(),
                  .column_positions = columns.data()});
}

TEST(CudaDropout, AttentionWeights) {
  expect_dropped({.rows = 2, .heads = 3, .tokens = 4, .columns = 17, .key = 5, .row = 1, .head = 6, .token = 2});
}

TEST(CudaDropout, MoreLinesThanThreads) {
  const RandomLines lines{.rows = 2, .tokens = 9000, .columns = 1, .key = 8};
  const Floats x(18000, 1);
  Numbers y(Real::float32, x);
  dropout(y.read(), y.write(), lines, limit, scale, nullptr);
  EXPECT_EQ(y.values(), expected(x, numbers(lines), Real::float32));
}

TEST(CudaDropout, NoElements) {
  dropout({}, {}, {.rows = 0, .tokens = 5, .columns = 3}, limit, scale, nullptr);
  uniform(nullptr, {.rows = 2, .tokens = 5, .columns = 0}, nullptr);
}

TEST(CudaUniform, HasTheBitsOfTheCpu) {
  for (const std::int64_t columns : {1, 33, 100}) {
    const RandomLines lines{.rows = 2, .tokens = 3, .columns = columns, .key = 9, .row = 1, .token = 2, .column = 4};
    in_each_order([&] {
      Floats y(static_cast<std::size_t>(6 * columns), -1), want;
      uniform(y.data(), lines, nullptr);
      for (const std::uint32_t number : numbers(lines)) want.push_back(static_cast<float>(number >> 8) * 0x1p-24F);
      EXPECT_EQ(y, want);
    });
  }
}

}  // namespace
}  // namespace tessera::kernels::cuda
