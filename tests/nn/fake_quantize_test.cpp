// Numbers rounded to few bits, against loops that follow DeepSpeed's formulas one number at a time.
#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/linear_maps/fake_quantized.h>
#include <tessera/nn/weight_gradients.h>

#include <tests/error_of.h>
#include "compare.h"

#include <cmath>
#include <cstring>

using namespace tessera;
using compare::error;
using tessera::testing::error_of;

namespace {

/// One group rounded as in deepspeed/compression/utils.py, also in float.
std::vector<float> rounded_by_loops(const std::vector<float>& g, const nn::FakeQuantization& how) {
  const auto n = static_cast<float>(g.size());
  float least = g[0], most = g[0], largest = 0;
  double sum = 0;
  for (const float x : g) {
    least = std::min(least, x);
    most = std::max(most, x);
    largest = std::max(largest, std::abs(x));
    sum += std::abs(x);
  }
  const double mean = sum / n;
  double above = 0, count = 0;
  for (const float x : g)
    if (std::abs(x) > 0.7 * mean) above += std::abs(x), ++count;
  std::vector<float> out;
  const auto levels = static_cast<float>(1 << how.bits);
  for (const float x : g) {
    const auto sign = static_cast<float>((x > 0) - (x < 0));
    if (how.bits == 1) {
      out.push_back(sign * static_cast<float>(mean));
    } else if (how.bits == 2) {
      out.push_back(std::abs(x) > 0.7 * mean ? sign * static_cast<float>(above / count) : 0);
    } else if (!how.asymmetric) {
      const float step = 2 * largest / levels;
      out.push_back(step == 0 ? x : std::clamp(std::nearbyint(x / step), -levels / 2, levels / 2 - 1) * step);
    } else {
      const float step = (most - least) / levels, zero = step == 0 ? 0 : std::nearbyint(least / step) * step;
      out.push_back(step == 0 ? x : std::clamp(std::nearbyint((x - zero) / step), 0.0f, levels - 1) * step + zero);
    }
  }
  return out;
}

at::Tensor by_loops(const at::Tensor& x, const nn::FakeQuantization& how) {
  const at::Tensor flat = x.to(at::kFloat).contiguous();
  const std::int64_t groups = how.groups > 0 ? how.groups : x.numel() / x.size(-1), size = x.numel() / groups;
  at::Tensor out = at::empty_like(flat);
  for (std::int64_t i = 0; i < groups; ++i) {
    const float* const from = flat.const_data_ptr<float>() + i * size;
    const auto rounded = rounded_by_loops(std::vector<float>(from, from + size), how);
    std::memcpy(out.mutable_data_ptr<float>() + i * size, rounded.data(), rounded.size() * sizeof(float));
  }
  return out;
}

std::vector<nn::FakeQuantization> ways() {
  std::vector<nn::FakeQuantization> all;
  for (const std::int64_t groups : {0, 1, 2, 6, 12})
    for (const std::int64_t bits : {1, 2, 3, 4, 8, 12})
      for (const bool asymmetric : {false, true})
        if (bits > 2 || !asymmetric) all.push_back({.bits = bits, .asymmetric = asymmetric, .groups = groups});
  return all;
}

struct FakeQuantize : ::testing::Test {
  void SetUp() override { at::manual_seed(0); }
};

TEST_F(FakeQuantize, NumbersAreThoseOfTheFormulas) {
  at::Tensor x = at::randn({2, 6, 32}) * at::linspace(0.1, 3, 12).view({2, 6, 1}) + 0.3;
  x[0][1].fill_(0);      // groups of zero range
  x[0][2].fill_(-0.25);  // if each group is a row
  for (const nn::FakeQuantization& how : ways()) {
    const at::Tensor got = nn::rounded_to_bits(x, how);
    ASSERT_TRUE(got.isfinite().all().item<bool>()) << how.bits;
    // The last bit of the step decides the direction of a tie; for one and two bits the sums are computed in a
    // different order.
    EXPECT_LT(error(got, by_loops(x, how)), 1e-6)
        << how.bits << " bits, " << how.groups << " groups " << how.asymmetric;
    EXPECT_TRUE(
        nn::rounded_to_bits(x.transpose(0, 1), how).equal(nn::rounded_to_bits(x.transpose(0, 1).contiguous(), how)));
    // There are at most as many distinct numbers as the bits allow.
    if (how.groups == 1 && how.bits <= 8) {
      EXPECT_LE(std::get<0>(at::_unique(got)).numel(), how.bits == 1 ? 3 : how.bits == 2 ? 3 : 1 << how.bits);
    }
  }
}

TEST_F(FakeQuantize, MoreBitsAreNearer) {
  const at::Tensor x = at::randn({64, 64});
  double before = 1;
  for (const std::int64_t bits : {1, 2, 3, 4, 6, 8, 12}) {
    const double off = error(nn::rounded_to_bits(x, {.bits = bits}), x);
    EXPECT_LT(off, before) << bits;
    before = off;
  }
  EXPECT_GT(error(nn::rounded_to_bits(x, {.bits = 12}), x), 1e-5);
  EXPECT_LT(error(nn::rounded_to_bits(x, {.bits = 4, .groups = 64}), x), error(nn::rounded_to_bits(x, {.bits = 4}), x));
}

TEST_F(FakeQuantize, TypesStayAndNothingStaysNothing) {
  const at::Tensor x = at::randn({4, 8});
  for (const at::ScalarType type : {at::kBFloat16, at::kHalf}) {
    const at::Tensor narrow = x.to(type), got = nn::rounded_to_bits(narrow, {.bits = 4, .groups = 4});
    EXPECT_EQ(got.scalar_type(), type);
    EXPECT_TRUE(got.equal(by_loops(narrow, {.bits = 4, .groups = 4}).to(type)));
  }
  EXPECT_EQ(nn::rounded_to_bits(at::empty({0, 8}), {.bits = 4, .groups = 0}).numel(), 0);
}

TEST_F(FakeQuantize, GradientsPassUnchanged) {
  const at::Tensor x = at::randn({6, 8}).set_requires_grad(true), dy = at::randn({6, 8});
  for (const nn::FakeQuantization& how : ways()) {
    x.mutable_grad().reset();
    nn::fake_quantize(x, how).backward(dy);
    EXPECT_TRUE(x.grad().equal(dy));
  }
}

TEST_F(FakeQuantize, NoiseIsDrawnByItsKey) {
  const at::Tensor x = at::randn({1000, 16});
  const nn::FakeQuantization one{.bits = 4, .stochastic = true, .key = 1};
  nn::FakeQuantization other = one;
  other.key = 2;
  EXPECT_TRUE(nn::rounded_to_bits(x, one).equal(nn::rounded_to_bits(x, one)));
  EXPECT_FALSE(nn::rounded_to_bits(x, one).equal(nn::rounded_to_bits(x, other)));
  // Rounding is unbiased: the mean of many draws is closer than a single rounding to nearest.
  at::Tensor mean = at::zeros_like(x);
  nn::FakeQuantization draw = one;
  for (draw.key = 10; draw.key < 110; ++draw.key) mean += nn::rounded_to_bits(x, draw) / 100;
  const at::Tensor inside = x.abs() < 0.8 * x.abs().max();
  EXPECT_LT(error(mean.masked_select(inside), x.masked_select(inside)),
            0.5 * error(nn::rounded_to_bits(x, {.bits = 4}).masked_select(inside), x.masked_select(inside)));
}

TEST_F(FakeQuantize, AShareOfTheNumberItself) {
  const at::Tensor x = at::randn({4, 16});
  const at::Tensor rounded = nn::rounded_to_bits(x, {.bits = 3});
  EXPECT_LT(error(nn::rounded_to_bits(x, {.bits = 3, .exact = 0.25}), 0.25 * x + 0.75 * rounded), 1e-6);
  EXPECT_LT(error(nn::rounded_to_bits(x, {.bits = 3, .exact = 1}), x), 1e-6);
}

TEST_F(FakeQuantize, ARangeMayBeGiven) {
  const at::Tensor x = at::randn({6, 8});
  for (const bool asymmetric : {false, true}) {
    nn::FakeQuantization how{.bits = 4, .asymmetric = asymmetric};
    const at::Tensor own = nn::rounded_to_bits(x, how);
    how.range = at::stack({x.min(), x.max()});
    EXPECT_TRUE(nn::rounded_to_bits(x, how).equal(own));
    // Numbers beyond the range are clamped.
    how.range = at::tensor({-0.5f, 0.25f});
    const at::Tensor cut = nn::rounded_to_bits(x, how);
    EXPECT_LE(cut.max().item<float>(), 0.5f);
    EXPECT_GE(cut.min().item<float>(), -0.6f);
    EXPECT_GT(x.max().item<float>(), 1);
  }
}

TEST_F(FakeQuantize, InputsOfTrainingAreNoted) {
  const at::Tensor x = at::randn({6, 8}), w = at::randn({4, 8});
  nn::QuantizedOperands operands;
  operands.noted = at::full({2}, -std::numeric_limits<float>::infinity());
  const auto product = [&](const at::Tensor& input, bool training) {
    return nn::fake_quantized_linear(input, w, {}, nn::WeightLayout::out_in, operands, training);
  };
  product(x * 2, false);
  EXPECT_FALSE(operands.noted.isfinite().any().item<bool>());
  EXPECT_TRUE(product(x, true).equal(nn::linear(x, w, {}, nn::WeightLayout::out_in)));
  product(x * 0.5, true);
  EXPECT_TRUE(operands.noted.equal(at::stack({x.min().neg(), x.max()})));
}

TEST_F(FakeQuantize, GroupsMustBeEqual) {
  EXPECT_NE(error_of<Error>([] {
              nn::rounded_to_bits(at::ones({3, 5}), {.bits = 8, .groups = 2});
            }).find("a tensor of 15 numbers cannot be divided into 2 equal groups"),
            std::string::npos);
  EXPECT_NE(error_of<Error>([] {
              nn::rounded_to_bits(at::ones({3, 5}), {.bits = 2, .asymmetric = true});
            }).find("rounding to 2 bits must be symmetric"),
            std::string::npos);
}

nn::QuantizedOperands both(std::int64_t weight_bits, std::int64_t groups) {
  return {nn::FakeQuantization{.bits = weight_bits, .groups = groups}, nn::FakeQuantization{.bits = 8, .groups = 0}};
}

TEST_F(FakeQuantize, LinearMapMultipliesRoundedOperands) {
  const at::Tensor x = at::randn({3, 10, 24}), w = at::randn({12, 24}), b = at::randn({12}),
                   dy = at::randn({3, 10, 12});
  for (const std::int64_t bits : {1, 2, 4, 8})
    for (const std::int64_t groups : {1, 4, 12})
      for (const bool out_first : {true, false})
        for (const bool half : {false, true}) {
          const nn::QuantizedOperands operands = both(bits, groups);
          const auto leaf = [](const at::Tensor& t) { return t.detach().clone().set_requires_grad(true); };
          const at::Tensor xx = leaf(x), ww = leaf(out_first ? w : w.t().contiguous()), bb = leaf(b);
          at::Tensor y;
          {
            const nn::Autocast bf16(half, at::kCPU);
            y = nn::fake_quantized_linear(xx, ww, bb, out_first ? nn::WeightLayout::out_in : nn::WeightLayout::in_out,
                                          operands);
          }
          EXPECT_EQ(y.sizes(), dy.sizes());
          EXPECT_EQ(y.scalar_type(), at::kFloat);
          y.backward(dy);
          // the input per token, the weight per group of [out, in] in either layout
          const at::Tensor rx = by_loops(x, *operands.input).view({30, 24}), rw = by_loops(w, *operands.weight),
                           rows = dy.view({30, 12});
          const double bound = half ? 2e-2 : 1e-6;
          EXPECT_LT(error(y.detach().view({30, 12}), at::mm(rx, rw.t()) + b), bound);
          EXPECT_LT(error(xx.grad().view({30, 24}), at::mm(rows, rw)), bound);
          EXPECT_LT(error(out_first ? ww.grad() : ww.grad().t(), at::mm(rows.t(), rx)), bound);
          EXPECT_LT(error(bb.grad(), rows.sum(0)), 1e-6);
          EXPECT_GT(error(y.detach().view({30, 12}), at::mm(x.view({30, 24}), w.t()) + b), 1e-3) << "not rounded";
          y.detach().add_(1);  // the caller adds in place
        }
}

TEST_F(FakeQuantize, OneOperandAlone) {
  const at::Tensor x = at::randn({5, 16}), w = at::randn({8, 16});
  nn::QuantizedOperands operands = both(4, 8);
  operands.input.reset();
  EXPECT_LT(error(nn::fake_quantized_linear(x, w, {}, nn::WeightLayout::out_in, operands),
                  at::mm(x, by_loops(w, *operands.weight).t())),
            1e-6);
  operands = both(4, 8);
  operands.weight.reset();
  EXPECT_LT(error(nn::fake_quantized_linear(x, w, {}, nn::WeightLayout::out_in, operands),
                  at::mm(by_loops(x, *operands.input), w.t())),
            1e-6);
  EXPECT_TRUE(nn::fake_quantized_linear(x, w, {}, nn::WeightLayout::out_in, {})
                  .equal(nn::linear(x, w, {}, nn::WeightLayout::out_in)));
}

TEST_F(FakeQuantize, OtherTypesAndFrozenWeights) {
  const at::Tensor x = at::randn({5, 16}).to(at::kDouble).set_requires_grad(true),
                   w = at::randn({8, 16}).to(at::kDouble);
  const nn::QuantizedOperands operands = both(4, 8);
  const at::Tensor y = nn::fake_quantized_linear(x, w, {}, nn::WeightLayout::out_in, operands);
  EXPECT_EQ(y.scalar_type(), at::kDouble);
  EXPECT_LT(error(y.detach(), at::mm(by_loops(x.detach(), *operands.input), by_loops(w, *operands.weight).t())), 1e-6);
  y.sum().backward();
  EXPECT_LT(error(x.grad(), by_loops(w, *operands.weight).sum(0).expand({5, 16})), 1e-6);
}

TEST_F(FakeQuantize, GradientsOfWeightsMayWait) {
  const at::Tensor x = at::randn({5, 16}), w = at::randn({8, 16}).set_requires_grad(true);
  const auto product = [&] { return nn::fake_quantized_linear(x, w, {}, nn::WeightLayout::out_in, both(2, 8)); };
  product().sum().backward();
  const at::Tensor wanted = w.grad();
  w.mutable_grad().reset();
  const auto late = c10::make_intrusive<nn::WeightGradients>();
  at::Tensor y;
  {
    const nn::WeightGradients::Scope remembered(late, /*defer=*/false);
    y = product();
  }
  {
    const nn::WeightGradients::Scope deferring(late, /*defer=*/true);
    y.sum().backward();
  }
  EXPECT_FALSE(w.grad().defined());
  late->compute();
  EXPECT_TRUE(w.grad().equal(wanted));
}

}  // namespace
