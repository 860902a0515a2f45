// Linear maps with frozen weights of few bits against the same maps with the dequantized matrix.
#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/base/text.h>
#include <tessera/kernels/cpu/quantize.h>
#include <tessera/nn/autocast.h>
#include <tessera/nn/linear.h>
#include <tessera/nn/linear_maps/quantized.h>

#include <cmath>
#include <limits>

#include "compare.h"

using namespace tessera;

namespace {

using nn::QuantizedForm;
using nn::QuantizedWeight;

std::vector<QuantizedForm> forms() {
  return {{.bits = 4, .type = QuantType::nf4},
          {.bits = 4, .type = QuantType::fp4},
          {.bits = 4, .type = QuantType::nf4, .double_quant = true},
          {.bits = 8}};
}

std::string named(const QuantizedForm& form) {
  return concat(form.bits, form.bits == 4 ? concat(" ", form.type, form.double_quant ? " double" : "") : "");
}

struct Quantized : ::testing::Test {
  Quantized() { at::manual_seed(3); }
};

TEST_F(Quantized, WeightsTakeAsManyBytesAsTheyShould) {
  const at::Tensor w = at::randn({192, 640}) * 0.02;
  const std::int64_t n = w.numel();
  EXPECT_EQ(nn::quantize(w, {.bits = 4}).bytes(), n / 2 + n / 64 * 4);
  EXPECT_EQ(nn::quantize(w, {.bits = 4, .double_quant = true}).bytes(), n / 2 + n / 64 + (n / 64 + 255) / 256 * 4);
  EXPECT_EQ(nn::quantize(w, {.bits = 8}).bytes(), n + 192 * 4);
}

TEST_F(Quantized, BlocksLieAlongTheFlatWeight) {
  const at::Tensor w = at::randn({7, 33}) * 0.1;  // every block spans several rows
  for (const QuantType type : {QuantType::nf4, QuantType::fp4}) {
    const at::Tensor got = nn::dequantize(nn::quantize(w, {.bits = 4, .type = type})), flat = w.flatten();
    for (std::int64_t begin = 0; begin < flat.numel(); begin += 64) {
      const at::Tensor block = flat.slice(0, begin, begin + 64);
      const double absmax = block.abs().max().item<double>(), widest = type == QuantType::nf4 ? 0.152 : 0.1667;
      EXPECT_LE((got.flatten().slice(0, begin, begin + 64) - block).abs().max().item<double>(), widest * absmax);
    }
    // The element of largest magnitude is exact.
    const at::Tensor first = flat.slice(0, 0, 64);
    const auto at_most = first.abs().argmax().item<std::int64_t>();
    EXPECT_FLOAT_EQ(got.flatten()[at_most].item<float>(), first[at_most].item<float>());
  }
}

TEST_F(Quantized, ErrorsAreAsLargeAsTheNumbersAreCoarse) {
  const at::Tensor w = at::randn({512, 512}) * 0.02;
  std::vector<double> errors;
  for (const QuantizedForm& form : forms()) errors.push_back(compare::error(nn::dequantize(nn::quantize(w, form)), w));
  EXPECT_NEAR(errors[0], 0.091, 0.003) << "NF4 of normal values";
  EXPECT_NEAR(errors[1], 0.122, 0.003) << "FP4";
  EXPECT_GT(errors[2], errors[0]);
  EXPECT_LT(errors[2], errors[0] * 1.01) << "double quantization costs little";
  EXPECT_LT(errors[3], 0.01);
  EXPECT_GT(errors[3], 0.003);
}

TEST_F(Quantized, DoubleQuantizationIsAroundTheMean) {
  const at::Tensor w = at::randn({300, 200});
  const QuantizedWeight once = nn::quantize(w, {.bits = 4}), twice = nn::quantize(w, {.bits = 4, .double_quant = true});
  EXPECT_TRUE(once.codes.equal(twice.codes));
  EXPECT_NEAR(twice.absmax_mean, once.absmax.mean().item<float>(), 1e-5);
  // Derives the absmax that products use from each block's element whose code is 1 or -1.
  const at::Tensor a = nn::dequantize(once).flatten(), b = nn::dequantize(twice).flatten();
  const at::Tensor around = once.absmax - twice.absmax_mean;
  for (std::int64_t block = 0; block < once.absmax.numel(); ++block) {
    const at::Tensor part = a.slice(0, block * 64, block * 64 + 64);
    const auto i = block * 64 + part.abs().argmax().item<std::int64_t>();
    const std::int64_t group = block / 256 * 256;
    const double bound = 0.00704 * around.slice(0, group, group + 256).abs().max().item<double>();
    ASSERT_LE(std::fabs(b[i].item<double>() - a[i].item<double>()), bound + 1e-6) << block;
  }
}

TEST_F(Quantized, TheSameForAnyNumberOfThreads) {
  const at::Tensor w = at::randn({300, 700});
  const int before = at::get_num_threads();
  for (const QuantizedForm& form : forms()) {
    at::set_num_threads(1);
    const QuantizedWeight one = nn::quantize(w, form);
    const at::Tensor wide = nn::dequantize(one);
    at::set_num_threads(3);
    const QuantizedWeight three = nn::quantize(w, form);
    EXPECT_TRUE(one.codes.equal(three.codes)) << named(form);
    EXPECT_TRUE(one.absmax.equal(three.absmax)) << named(form);
    EXPECT_EQ(one.absmax_mean, three.absmax_mean) << named(form);
    EXPECT_TRUE(wide.equal(nn::dequantize(three))) << named(form);
  }
  at::set_num_threads(before);
}

/// y, dx, db of x [2, 5, in] by f(x, bias).
template <class F>
compare::Tensors passes(const at::Tensor& x, const at::Tensor& b, const at::Tensor& dy, const F& f) {
  const at::Tensor xx = x.detach().clone().set_requires_grad(true), bb = b.detach().clone().set_requires_grad(true);
  const at::Tensor y = f(xx, bb);
  y.backward(dy.to(y.scalar_type()));
  return {y.detach(), xx.grad(), bb.grad()};
}

TEST_F(Quantized, AMapIsThatOfTheWidenedMatrixToTheLastBit) {
  const at::Tensor x = at::randn({2, 5, 96}), b = at::randn({70}), dy = at::randn({2, 5, 70});
  for (const QuantizedForm& form : forms())
    for (const bool bf16 : {false, true}) {
      const auto kept = std::make_shared<const QuantizedWeight>(nn::quantize(at::randn({70, 96}) * 0.1, form));
      const at::Tensor wide = nn::dequantize(*kept);
      const nn::Autocast precision(bf16, at::kCPU);
      const auto got =
          passes(x, b, dy, [&](const auto& xx, const auto& bb) { return nn::quantized_linear(xx, kept, bb); });
      const auto wanted = passes(
          x, b, dy, [&](const auto& xx, const auto& bb) { return nn::linear(xx, wide, bb, nn::WeightLayout::out_in); });
      EXPECT_TRUE(got[0].equal(wanted[0])) << named(form) << ", bf16 " << bf16;
      EXPECT_TRUE(got[1].equal(wanted[1])) << named(form) << ", bf16 " << bf16;
      EXPECT_LT(compare::error(got[2], wanted[2]), 1e-6);
      const at::Tensor plain = nn::quantized_linear(x, kept, {});
      EXPECT_LT(compare::error(plain + b, got[0]), 1e-6);
    }
}

TEST_F(Quantized, ProductsHaveTheTypeThatTheFormSays) {
  const at::Tensor x = at::randn({6, 128}), w = at::randn({64, 128});
  const auto product = [&](std::optional<at::ScalarType> compute, std::optional<at::ScalarType> autocast) {
    const auto kept = std::make_shared<const QuantizedWeight>(nn::quantize(w, {.bits = 4, .compute = compute}));
    const nn::Autocast precision(autocast, at::kCPU);
    return nn::quantized_linear(x, kept, {});
  };
  const at::Tensor fp32 = product({}, {}), bf16 = product({}, at::kBFloat16);
  EXPECT_FALSE(fp32.equal(bf16));
  EXPECT_TRUE(product(at::kBFloat16, {}).equal(bf16));
  EXPECT_TRUE(product(at::kFloat, at::kBFloat16).equal(fp32));
  EXPECT_FALSE(product(at::kHalf, {}).equal(bf16));
  EXPECT_LT(compare::error(product(at::kHalf, {}), fp32), compare::error(bf16, fp32)) << "three bits more";
  EXPECT_EQ(bf16.scalar_type(), at::kFloat);
}

TEST_F(Quantized, OtherInputsKeepTheirType) {
  const auto kept = std::make_shared<const QuantizedWeight>(nn::quantize(at::randn({8, 64}), {}));
  const at::Tensor x = at::randn({3, 64}).to(at::kBFloat16).set_requires_grad(true);
  const at::Tensor y = nn::quantized_linear(x, kept, {});
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(x.grad().scalar_type(), at::kBFloat16);
  EXPECT_EQ(nn::quantized_linear(at::zeros({0, 64}), kept, {}).sizes(), (std::vector<std::int64_t>{0, 8}));
  EXPECT_THROW(nn::quantized_linear(at::zeros({2, 63}), kept, {}), Error);
}

TEST_F(Quantized, WhatIsNotFiniteShows) {
  for (const QuantizedForm& form : forms())
    for (const double odd : {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
      at::Tensor w = at::randn({9, 100});
      EXPECT_TRUE(nn::is_finite(nn::quantize(w, form)));
      w[4][50] = odd;
      EXPECT_FALSE(nn::is_finite(nn::quantize(w, form))) << named(form) << ", " << odd;
    }
  EXPECT_THROW(nn::quantize(at::zeros({4}), {}), Error);
  EXPECT_THROW(nn::quantize(at::zeros({4, 4}), {.bits = 3}), Error);
}

}  // namespace
