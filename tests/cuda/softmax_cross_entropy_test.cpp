// Cross-entropy of rows of logits and its gradient, compared with the plain formulas in double.
#include <tessera/kernels/cuda/softmax_cross_entropy.h>
#include <tests/cuda/numbers.h>

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

namespace tessera::kernels::cuda {
namespace {

using cuda_tests::Doubles;
using cuda_tests::Floats;
using cuda_tests::in_each_order;
using cuda_tests::Numbers;

constexpr std::int64_t ignored = -100;
constexpr double scale = 0.37, nan = std::numeric_limits<double>::quiet_NaN();

/// {losses, gradients}
std::pair<Doubles, Doubles> expected(const Doubles& logits, const std::vector<std::int64_t>& targets,
                                     std::int64_t columns, double smoothing) {
  Doubles losses, gradients;
  const auto v = static_cast<double>(columns);
  for (std::size_t r = 0; r < targets.size(); ++r) {
    const auto row = logits.begin() + static_cast<std::ptrdiff_t>(r) * columns;
    const std::int64_t target = targets[r];
    if (target < 0 || target >= columns) {
      const double value = target == ignored ? 0 : nan;
      losses.push_back(value);
      gradients.insert(gradients.end(), static_cast<std::size_t>(columns), value);
      continue;
    }
    const double largest = *std::max_element(row, row + columns);
    double total = 0;
    for (auto x = row; x != row + columns; ++x) total += std::exp(*x - largest);
    const double at_target = row[target], mean = std::accumulate(row, row + columns, 0.0) / v;
    losses.push_back(std::log(total) + largest - at_target + (smoothing > 0 ? smoothing * (at_target - mean) : 0));
    for (std::int64_t j = 0; j < columns; ++j) {
      const double is_target = j == target ? 1 : 0;
      gradients.push_back(scale * (std::exp(row[j] - largest) / total - is_target + smoothing * (is_target - 1 / v)));
    }
  }
  return {losses, gradients};
}

/// Compares; NaN equals only NaN.
template <class Some>
void expect_near(const Some& got, const Doubles& want, double bound, double scale_of_bound) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < want.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << i;
    } else {
      EXPECT_LE(std::abs(static_cast<double>(got[i]) - want[i]), bound * (scale_of_bound + std::abs(want[i]))) << i;
    }
  }
}

void check(const Floats& logits, const std::vector<std::int64_t>& targets, std::int64_t columns, double smoothing,
           Real type, int shift) {
  const auto rows = static_cast<std::int64_t>(targets.size());
  in_each_order([&] {
    for (const bool gradient : {false, true}) {
      Numbers x(type, logits, shift);
      const Doubles seen = x.values();
      const auto [losses, gradients] = expected(seen, targets, columns, smoothing);
      Doubles got(targets.size(), -1);
      softmax_cross_entropy(x.write(), targets.data(), got.data(), rows, columns,
                            {.scale = static_cast<float>(scale),
                             .smoothing = static_cast<float>(smoothing),
                             .ignored = ignored,
                             .gradient = gradient},
                            nullptr);
      expect_near(got, losses, 1e-6, 1);
      if (gradient) {
        expect_near(x.values(), gradients, type == Real::float32 ? 1e-6 : 0x1p-8, type == Real::float32 ? 0.1 : 1e-6);
      } else {
        EXPECT_EQ(x.values(), seen);
      }
    }
  });
}

TEST(CudaSoftmaxCrossEntropy, FollowsTheFormula) {
  for (const std::int64_t columns : {1, 33, 511, 513, 4097}) {
    const std::vector<std::int64_t> targets = {0, ignored, columns - 1};
    const Floats logits = reference::random(3 * columns, static_cast<unsigned>(columns), 3);
    for (const Real type : {Real::float32, Real::bfloat16}) {
      check(logits, targets, columns, 0, type, 0);
      check(logits, targets, columns, 0.1, type, 1);
    }
  }
}

TEST(CudaSoftmaxCrossEntropy, LargeLogitsDoNotOverflow) {
  Floats logits = reference::random(1200, 5, 30, 100);
  logits[7] = 3000;
  logits[900] = -3000;
  check(logits, {6, 8}, 600, 0.2, Real::float32, 0);
}

TEST(CudaSoftmaxCrossEntropy, MaskedWordsHaveNoProbability) {
  Floats logits = reference::random(5000, 6);
  std::fill(logits.begin(), logits.begin() + 4500, -std::numeric_limits<float>::infinity());
  check(logits, {4700}, 5000, 0, Real::float32, 0);
}

TEST(CudaSoftmaxCrossEntropy, TargetsOutsideTheVocabularyAreNotLookedUp) {
  const Floats logits = reference::random(4 * 40, 8);
  check(logits, {40, -1, 3, std::numeric_limits<std::int64_t>::max()}, 40, 0, Real::float32, 0);
}

TEST(CudaSoftmaxCrossEntropy, NotANumberStaysVisible) {
  Floats logits = reference::random(700, 9);
  logits[600] = std::numeric_limits<float>::quiet_NaN();
  double loss = 0;
  softmax_cross_entropy({logits.data(), Real::float32}, std::vector<std::int64_t>{3}.data(), &loss, 1, 700, {},
                        nullptr);
  EXPECT_TRUE(std::isnan(loss));
  EXPECT_TRUE(std::isnan(logits[0]));
}

// Columns beyond the vocabulary are ignored, and their gradient is 0.
TEST(CudaSoftmaxCrossEntropy, Padding) {
  constexpr std::int64_t rows = 3, columns = 513, padding = 7;
  const std::vector<std::int64_t> targets = {0, ignored, columns - 1};
  Floats plain = reference::random(rows * columns, 9, 3), padded;
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = plain.begin() + r * columns;
    padded.insert(padded.end(), row, row + columns);
    padded.insert(padded.end(), padding, 50.0F);
  }
  std::vector<double> losses(rows), losses_of_padded(rows);
  softmax_cross_entropy({plain.data(), Real::float32}, targets.data(), losses.data(), rows, columns, {}, nullptr);
  softmax_cross_entropy({padded.data(), Real::float32}, targets.data(), losses_of_padded.data(), rows, columns,
                        {.padding = padding}, nullptr);
  EXPECT_EQ(losses_of_padded, losses);
  for (std::int64_t r = 0; r < rows; ++r) {
    const auto row = padded.begin() + r * (columns + padding);
    EXPECT_TRUE(std::equal(row, row + columns, plain.begin() + r * columns)) << r;
    EXPECT_EQ(Floats(row + columns, row + columns + padding), Floats(padding, 0.0F)) << r;
  }
}

TEST(CudaSoftmaxCrossEntropy, NoRows) { softmax_cross_entropy({}, nullptr, nullptr, 0, 5, {}, nullptr); }

}  // namespace
}  // namespace tessera::kernels::cuda
