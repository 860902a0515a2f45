// The CUDA kernels, compiled for the host, compared with their references: odd sizes, exactly sized memory, every order
// of threads.
#include <tessera/kernels/cuda/adamw.h>
#include <tessera/kernels/cuda/exact_squares.h>
#include <tessera/kernels/cuda/step_scalars.h>
#include <tessera/optim/exact_sum.h>
#include <tests/cuda/numbers.h>
#include <tests/kernels/reference.h>

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

namespace {

using namespace tessera::kernels;
using reference::doubles;
using reference::Floats;

/// Parameter, averages and their references.
struct Adamw {
  explicit Adamw(std::int64_t n)
      : p(reference::random(n, 1)), m(static_cast<std::size_t>(n)), v(static_cast<std::size_t>(n)) {}
  cuda::AdamwRange range(const Floats& g, const AdamwArgs& args) {
    return {p.data(), g.data(), m.data(), v.data(), static_cast<std::int64_t>(p.size()), args};
  }
  void step_reference(const Floats& g, const AdamwArgs& args) { reference::adamw(p2, doubles(g), m2, v2, args); }
  void expect_equal() const {
    EXPECT_LT(reference::error(p, p2), 1e-6) << p.size();
    EXPECT_LT(reference::error(m, m2), 1e-6) << p.size();
    EXPECT_LT(reference::error(v, v2), 1e-6) << p.size();
  }

  Floats p, m, v;
  reference::Doubles p2 = doubles(p), m2 = doubles(m), v2 = doubles(v);
};

TEST(CudaAdamw, FollowsTheFormulaOverSteps) {
  for (const std::int64_t n : {1, 31, 255, 256, 257, 1023, 1024, 1025, 3000}) {
    cuda_tests::in_each_order([&] {
      Adamw one(n);
      for (int step = 1; step <= 3; ++step) {
        const Floats g = reference::random(n, 10 + static_cast<unsigned>(step));
        const AdamwArgs a{.learning_rate = 1e-2, .weight_decay = 0.1, .gradient_scale = 0.7, .step = step};
        cuda::adamw(std::vector{one.range(g, a)}, nullptr, nullptr);
        one.step_reference(g, a);
      }
      one.expect_equal();
    });
  }
}

// More ranges than one launch takes, each with different numbers.
TEST(CudaAdamw, ManyParameters) {
  std::vector<Adamw> all;
  std::vector<Floats> gradients;
  for (int i = 0; i < 100; ++i) {
    all.emplace_back(1 + i * 13);
    gradients.push_back(reference::random(1 + i * 13, 50 + static_cast<unsigned>(i)));
  }
  std::vector<cuda::AdamwRange> ranges;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const AdamwArgs a{.learning_rate = 1e-3 * static_cast<double>(i), .weight_decay = i % 2 == 0 ? 0.1 : 0};
    ranges.push_back(all[i].range(gradients[i], a));
    all[i].step_reference(gradients[i], a);
  }
  cuda::adamw(ranges, nullptr, nullptr);
  for (const Adamw& one : all) one.expect_equal();
}

TEST(CudaAdamw, ScalarsOfTheDevice) {
  const Floats g = reference::random(300, 2);
  Adamw one(300);
  const AdamwArgs a{.learning_rate = 1e-2, .weight_decay = 0.1};
  cuda::StepScalars scalars{.norm = 4, .gradient_scale = 0.25F, .skip = 0};
  cuda::adamw(std::vector{one.range(g, a)}, &scalars, nullptr);
  AdamwArgs scaled = a;
  scaled.gradient_scale = 0.25;
  one.step_reference(g, scaled);
  one.expect_equal();
  scalars.skip = 1;
  scalars.gradient_scale = std::numeric_limits<float>::quiet_NaN();
  const Floats before = one.p;
  cuda::adamw(std::vector{one.range(g, a)}, &scalars, nullptr);
  EXPECT_EQ(one.p, before);
  one.expect_equal();
}

/// Words of a sum over two ranks.
std::vector<std::int64_t> words_of(const std::vector<Floats>& ranks) {
  std::vector<std::int64_t> words(exact_words, 0);
  for (const Floats& x : ranks) {
    std::vector<std::int64_t> own(exact_words, 0);
    cuda::add_exact_squares(std::vector<cuda::SquareRange>{{x.data(), static_cast<std::int64_t>(x.size())}},
                            cuda::Real::float32, own.data(), nullptr);
    cuda::carry_words(own.data(), nullptr);
    for (std::size_t i = 0; i < own.size(); ++i) words[i] += own[i];
  }
  return words;
}

TEST(CudaStepScalars, HaveTheBitsOfTheHost) {
  const std::vector<Floats> ranks = {reference::random(1000, 3), reference::random(64, 4, 1e-3F)};
  tessera::optim::ExactSum sum = tessera::optim::ExactSum::of_words(words_of(ranks));
  const double norm = std::sqrt(sum.value());
  for (const double max_norm : {0.0, 1.0, 1e6}) {
    std::vector<std::int64_t> words = words_of(ranks);
    cuda::StepScalars scalars{};
    cuda::form_step_scalars(words.data(), max_norm, &scalars, nullptr);
    EXPECT_EQ(scalars.norm, norm);
    EXPECT_EQ(scalars.gradient_scale, max_norm == 1.0 ? static_cast<float>(1.0 / (norm + 1e-6)) : 1.0F);
    EXPECT_EQ(scalars.skip, 0U);
  }
}

TEST(CudaStepScalars, SkipWhatIsNotFinite) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    std::vector<std::int64_t> words = words_of({{1, 2}, {bad, 1}});
    cuda::StepScalars scalars{};
    cuda::form_step_scalars(words.data(), 1, &scalars, nullptr);
    EXPECT_EQ(std::isnan(scalars.norm), std::isnan(bad));
    EXPECT_EQ(scalars.skip, 1U);
  }
}

/// Sums of squares of blocks of 64, as in kernels/cpu/block_squares.h, added exactly.
double expected(const std::vector<Floats>& pieces) {
  tessera::optim::ExactSum sum;
  for (const Floats& x : pieces) {
    for (std::size_t begin = 0; begin < x.size(); begin += 64) {
      double lanes[32] = {};
      for (std::size_t k = 0; k < 64 && begin + k < x.size(); ++k) {
        lanes[k % 32] += static_cast<double>(x[begin + k]) * static_cast<double>(x[begin + k]);
      }
      for (std::size_t half = 16; half > 0; half /= 2) {
        for (std::size_t k = 0; k < half; ++k) lanes[k] += lanes[k + half];
      }
      sum.add(lanes[0]);
    }
  }
  return sum.value();
}

double value_of(const std::vector<std::int64_t>& words) { return tessera::optim::ExactSum::of_words(words).value(); }

TEST(CudaExactSquares, HasTheBitsOfTheCpu) {
  const std::vector<std::int64_t> sizes = {1, 31, 32, 33, 63, 64, 65, 1000, 64 * 256 + 1};
  std::vector<Floats> pieces;
  for (const std::int64_t n : sizes) pieces.push_back(reference::random(n, static_cast<unsigned>(n), 1e-3F));
  pieces.push_back({1e30F, 1e-30F, 3e-45F, 0, -0.0F});
  std::vector<cuda::SquareRange> ranges;
  for (const Floats& x : pieces) ranges.push_back({x.data(), static_cast<std::int64_t>(x.size())});
  ranges.push_back({nullptr, 0});
  cuda_tests::in_each_order([&] {
    std::vector<std::int64_t> words(exact_words, 0);
    cuda::add_exact_squares(ranges, cuda::Real::float32, words.data(), nullptr);
    EXPECT_EQ(value_of(words), expected(pieces));
  });
}

TEST(CudaExactSquares, MoreRangesThanOneLaunchTakes) {
  const Floats x = reference::random(65, 3);
  std::vector<std::int64_t> words(exact_words, 0);
  cuda::add_exact_squares(std::vector<cuda::SquareRange>(130, {x.data(), 65}), cuda::Real::float32, words.data(),
                          nullptr);
  EXPECT_EQ(value_of(words), expected(std::vector<Floats>(130, x)));
}

TEST(CudaExactSquares, Bfloat16) {
  const std::size_t n = 333;
  const auto bits = std::make_unique<std::uint16_t[]>(n);  // exactly n: AddressSanitizer detects a read past the end
  Floats rounded;
  const Floats x = reference::random(static_cast<std::int64_t>(n), 5);
  for (std::size_t i = 0; i < n; ++i) {
    bits[i] = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x[i]) >> 16);
    rounded.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]) << 16));
  }
  std::vector<std::int64_t> words(exact_words, 0);
  const cuda::SquareRange range{bits.get(), static_cast<std::int64_t>(n)};
  cuda::add_exact_squares({&range, 1}, cuda::Real::bfloat16, words.data(), nullptr);
  EXPECT_EQ(value_of(words), expected({rounded}));
}

TEST(CudaExactSquares, NotANumberAndInfinityStayVisible) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Floats x = reference::random(100, 4);
    x[77] = bad;
    std::vector<std::int64_t> words(exact_words, 0);
    const cuda::SquareRange range{x.data(), 100};
    cuda::add_exact_squares({&range, 1}, cuda::Real::float32, words.data(), nullptr);
    const double value = value_of(words);
    EXPECT_EQ(std::isnan(value), std::isnan(bad));
    EXPECT_FALSE(std::isfinite(value));
  }
}

}  // namespace
