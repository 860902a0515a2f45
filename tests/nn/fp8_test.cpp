#include <tessera/nn/autocast.h>
#include <tessera/nn/linear_maps/fp8_linear.h>
#include <tessera/nn/weight_gradients.h>

#include "compare.h"

#include <cmath>
#include <cstring>

using namespace tessera;
using compare::error;
using nn::Fp8Operand;

namespace {

/// Rounds to nearest, ties to even, by the definition of a format: `bits` mantissa bits, the smallest normal exponent
/// `least_exponent`, the largest value `most`.
double rounded_by_definition(double x, int bits, int least_exponent, double most) {
  const double size = std::min(std::abs(x), most);
  if (size == 0) return x;
  const int exponent = std::max(std::ilogb(size), least_exponent);
  const double step = std::ldexp(1.0, exponent - bits), near = std::nearbyint(size / step) * step;
  return std::copysign(std::min(near, most), x);
}

struct Fp8 : ::testing::Test {
  void SetUp() override { at::manual_seed(0); }

  static nn::Fp8Options options(Fp8Recipe recipe, Fp8Format format = Fp8Format::hybrid) {
    nn::Fp8Options o;
    o.format = format;
    o.recipe = recipe;
    return o;
  }
  static std::shared_ptr<nn::Fp8Map> map_of(nn::Fp8Options o) {
    return std::make_shared<nn::Fp8Map>(std::make_shared<nn::Fp8State>(o, 1), 0);
  }
};

constexpr Fp8Recipe recipes[] = {Fp8Recipe::delayed, Fp8Recipe::tensorwise, Fp8Recipe::blockwise, Fp8Recipe::mxfp8};

TEST_F(Fp8, NumbersAreThoseOfTheFormats) {
  // Every exponent of both formats, exponents below and above their ranges, and ties.
  std::vector<float> numbers = {0, -0.0f, 448, 449, 463.9f, 464, 480, 1e6f, -57344, 61439, 61440, 1e-12f};
  for (int exponent = -20; exponent <= 17; ++exponent)
    for (int i = 32; i < 64; ++i)
      for (const float sign : {1.0f, -1.0f}) numbers.push_back(sign * std::ldexp(static_cast<float>(i), exponent - 5));
  const at::Tensor x = at::tensor(numbers).view({1, -1});
  for (const auto& [type, bits, least] :
       {std::tuple(at::kFloat8_e4m3fn, 3, -6), std::tuple(at::kFloat8_e5m2, 2, -14)}) {
    const double most = nn::fp8_most(type);
    const nn::Fp8Tensor got = nn::to_fp8(x, type, at::scalar_tensor(most, at::kFloat));
    ASSERT_EQ(got.scale.item<float>(), 1);
    const at::Tensor wide = nn::widened(got);
    for (std::size_t i = 0; i < numbers.size(); ++i)
      ASSERT_EQ(wide[0][static_cast<std::int64_t>(i)].item<float>(),
                rounded_by_definition(numbers[i], bits, least, most))
          << numbers[i] << " with " << bits << " bits";
  }
}

TEST_F(Fp8, OneScaleMakesTheLargestValueTheLargestNumber) {
  const at::Tensor x = at::randn({7, 9}) * 3e-4;
  const at::Tensor amax = x.abs().max();
  ASSERT_EQ(nn::largest_value(x).item<float>(), amax.item<float>());
  for (const std::int64_t margin : {0, 2}) {
    const nn::Fp8Tensor got = nn::to_fp8(x, at::kFloat8_e4m3fn, amax, margin);
    EXPECT_NEAR(got.scale.item<double>(), amax.item<double>() * std::ldexp(1.0, static_cast<int>(margin)) / 448,
                1e-6 * got.scale.item<double>());
    EXPECT_EQ(got.values.to(at::kFloat).abs().max().item<float>(), margin == 0 ? 448 : 112);
    EXPECT_LT(error(nn::widened(got), x), 0.04);
    EXPECT_GT(error(nn::widened(got), x), 0.005);
  }
  const at::Tensor none = at::zeros({4, 4});
  EXPECT_EQ(nn::to_fp8(none, at::kFloat8_e4m3fn, nn::largest_value(none)).scale.item<float>(), 1);
}

TEST_F(Fp8, BlocksHaveTheLeastPowerOfTwoThatFits) {
  const at::Tensor x = at::randn({5, 70}) * at::logspace(-6, 3, 70);
  for (const auto& [rows, columns] : {std::pair(1, 32), std::pair(3, 20)}) {
    const nn::Fp8Tensor got = nn::to_fp8_blocks(x, at::kFloat8_e4m3fn, rows, columns);
    const at::Tensor wide = nn::widened(got);
    ASSERT_EQ(wide.sizes(), x.sizes());
    for (std::int64_t i = 0; i < x.size(0); i += rows)
      for (std::int64_t j = 0; j < x.size(1); j += columns) {
        const auto block = [&](const at::Tensor& t) {
          return t.slice(0, i, std::min(i + rows, x.size(0))).slice(1, j, std::min(j + columns, x.size(1)));
        };
        const double scale = got.scale[i / rows][j / columns].item<double>(),
                     amax = block(x).abs().max().item<double>();
        ASSERT_EQ(scale, std::exp2(std::ceil(std::log2(amax / 448)))) << i << ", " << j;
        for (std::int64_t a = 0; a < block(x).size(0); ++a)
          for (std::int64_t b = 0; b < block(x).size(1); ++b)
            ASSERT_EQ(block(wide)[a][b].item<double>(),
                      scale * rounded_by_definition(block(x)[a][b].item<double>() / scale, 3, -6, 448));
      }
  }
  const at::Tensor exact = at::full({1, 32}, 448 * 8.0);
  EXPECT_EQ(nn::to_fp8_blocks(exact, at::kFloat8_e4m3fn, 1, 32).scale.item<float>(), 8);
}

TEST_F(Fp8, RecipesSayWhatSharesAScale) {
  const at::Tensor x = at::randn({200, 300});
  using Sizes = std::vector<std::int64_t>;
  const std::tuple<Fp8Recipe, Sizes, Sizes> wanted[] = {{Fp8Recipe::delayed, {1, 1}, {1, 1}},
                                                        {Fp8Recipe::tensorwise, {1, 1}, {1, 1}},
                                                        {Fp8Recipe::blockwise, {200, 3}, {2, 3}},
                                                        {Fp8Recipe::mxfp8, {200, 10}, {200, 10}}};
  for (const auto& [recipe, of_others, of_weight] : wanted)
    for (const auto operand : {Fp8Operand::input, Fp8Operand::weight, Fp8Operand::gradient}) {
      const nn::Fp8Tensor got = map_of(options(recipe))->rounded(x, operand, false);
      EXPECT_EQ(got.scale.sizes().vec(), operand == Fp8Operand::weight ? of_weight : of_others);
      EXPECT_EQ(got.values.scalar_type(), operand == Fp8Operand::gradient ? at::kFloat8_e5m2 : at::kFloat8_e4m3fn);
      EXPECT_EQ(map_of(options(recipe, Fp8Format::e4m3))->rounded(x, operand, false).values.scalar_type(),
                at::kFloat8_e4m3fn);
    }
}

TEST_F(Fp8, DelayedScalesFollowTheHistory) {
  nn::Fp8Options o = options(Fp8Recipe::delayed);
  o.amax_history_len = 3;
  for (const Fp8Amax which : {Fp8Amax::most_recent, Fp8Amax::max}) {
    o.amax_compute = which;
    const auto state = std::make_shared<nn::Fp8State>(o, 2);
    const nn::Fp8Map map(state, 1);
    const auto scale = [&](double largest, bool note) {
      return map.rounded(at::full({2, 2}, largest), Fp8Operand::input, note).scale.item<double>() * 448;
    };
    EXPECT_NEAR(scale(5, true), 5, 1e-5) << "without a history, the current value";
    EXPECT_NEAR(scale(2, true), 2, 1e-5);
    EXPECT_NEAR(scale(50, false), 50, 1e-4) << "not noted";
    state->end_step();
    EXPECT_NEAR(scale(1, true), 5, 1e-5) << "the previous step's largest value";
    EXPECT_EQ(map.rounded(at::full({2, 2}, 100.0), Fp8Operand::input, false).values.to(at::kFloat).max().item<float>(),
              448)
        << "values out of range become the largest number";
    state->end_step();
    EXPECT_NEAR(scale(INFINITY, true), which == Fp8Amax::max ? 5 : 1, 1e-5);
    state->end_step();
    EXPECT_NEAR(scale(1, true), which == Fp8Amax::max ? 5 : 1, 1e-5) << "non-finite values are not recorded";
    state->end_step();
    EXPECT_NEAR(scale(1, true), 1, 1e-5) << "the history has three steps";
    EXPECT_EQ(state->history().select(1, 0).abs().sum().item<float>(), 0) << "another map's state";
    nn::Fp8State other(o, 2);
    other.set_history(state->history());
    EXPECT_TRUE(other.history().equal(state->history()));
  }
}

/// y, dx, dW, db by plain products of the rounded operands.
compare::Tensors by_definition(const nn::Fp8Map& map, const at::Tensor& x, const at::Tensor& w, const at::Tensor& b,
                               const at::Tensor& dy) {
  const auto r = [&](const at::Tensor& t, Fp8Operand o) {
    return nn::widened(map.rounded(t, o, false)).to(at::kDouble);
  };
  using enum Fp8Operand;
  return {at::mm(r(x, input), r(w, weight).t()) + b, at::mm(r(dy, gradient), r(w.t(), weight).t()),
          at::mm(r(dy.t(), gradient), r(x.t(), input).t()), dy.sum(0)};
}

TEST_F(Fp8, AllThreeProductsAreOfRoundedOperands) {
  const at::Tensor x = at::randn({3, 50, 200}), b = at::randn({140}), dy = at::randn({3, 50, 140}) * 1e-3,
                   w = at::randn({140, 200});
  for (const Fp8Recipe recipe : recipes)
    for (const Fp8Format format : {Fp8Format::e4m3, Fp8Format::hybrid})
      for (const bool out_first : {true, false}) {
        const bool beside_bf16 = out_first;  // otherwise all but the products is fp32; the products are the same
        const auto map = map_of(options(recipe, format));
        const auto wanted = by_definition(*map, x.view({150, 200}), w, b, dy.view({150, 140}));
        const auto leaf = [](const at::Tensor& t) { return t.detach().clone().set_requires_grad(true); };
        const at::Tensor xx = leaf(x), ww = leaf(out_first ? w : w.t().contiguous()), bb = leaf(b);
        const auto layout = out_first ? nn::WeightLayout::out_in : nn::WeightLayout::in_out;
        at::Tensor y;
        {
          const nn::Autocast bf16(beside_bf16, at::kCPU);
          const nn::Fp8Scope scope(map, true);
          y = nn::linear(xx, ww, bb, layout);
        }
        y.backward(dy);
        const at::Tensor dw = out_first ? ww.grad() : ww.grad().t();
        EXPECT_LT(error(y.detach().view({150, 140}), wanted[0]), 1e-6);
        EXPECT_LT(error(xx.grad().view({150, 200}), wanted[1]), 1e-6);
        EXPECT_LT(error(dw, wanted[2]), 1e-6);
        EXPECT_LT(error(bb.grad(), wanted[3]), 1e-6);
        EXPECT_TRUE(ww.grad().is_contiguous());
        const double off = error(y.detach().view({150, 140}), at::mm(x.view({150, 200}), w.t()) + b);
        EXPECT_LT(off, 0.05);
        EXPECT_GT(off, 0.01) << "it was not rounded";
        if (format == Fp8Format::hybrid && recipe == Fp8Recipe::tensorwise) {
          const auto e4m3 = map_of(options(recipe, Fp8Format::e4m3));
          EXPECT_GT(
              error(xx.grad().view({150, 200}), by_definition(*e4m3, x.view({150, 200}), w, b, dy.view({150, 140}))[1]),
              1e-3);
        }
      }
}

TEST_F(Fp8, PartsAndLateGradientsAreTheSame) {
  const auto map = map_of(options(Fp8Recipe::blockwise));
  const at::Tensor x = at::randn({5, 3, 130}), w = at::randn({20, 130}).set_requires_grad(true);
  const nn::Fp8Scope scope(map, true);
  const at::Tensor y = nn::linear(x, w, {}, nn::WeightLayout::out_in);
  y.sum().backward();
  const at::Tensor wanted = w.grad();
  w.mutable_grad().reset();
  std::int64_t rows = 0;
  const at::Tensor parts =
      nn::linear_in_parts(x, w, nn::WeightLayout::out_in, {2, [&](const at::Tensor& part) { rows += part.size(0); }});
  EXPECT_EQ(rows, 5);
  EXPECT_LT(error(parts.detach(), y.detach()), 1e-6);
  const auto late = c10::make_intrusive<nn::WeightGradients>();
  at::Tensor again;
  {
    const nn::WeightGradients::Scope remembered(late, /*defer=*/false);
    again = nn::linear(x, w, {}, nn::WeightLayout::out_in);
  }
  {
    const nn::WeightGradients::Scope deferring(late, /*defer=*/true);
    again.sum().backward();
  }
  EXPECT_FALSE(w.grad().defined());
  late->compute();
  EXPECT_TRUE(w.grad().equal(wanted));
}

TEST_F(Fp8, LibTorchsScaledProductIsTheSame) {
  const at::Tensor a = at::randn({32, 64}), b = at::randn({48, 64}) * 7;
  const auto one = [](const at::Tensor& t, at::ScalarType type) { return nn::to_fp8(t, type, nn::largest_value(t)); };
  for (const at::ScalarType type : {at::kFloat8_e4m3fn, at::kFloat8_e5m2}) {
    const nn::Fp8Tensor left = one(a, type), right = one(b, at::kFloat8_e4m3fn);
    EXPECT_LT(error(nn::scaled_product(left, right), nn::fp8_product(left, right)), 1e-6);
  }
}

TEST_F(Fp8, OutsideOfAScopeNothingChanges) {
  const at::Tensor x = at::randn({4, 32}), w = at::randn({8, 32});
  const at::Tensor plain = nn::linear(x, w, {}, nn::WeightLayout::out_in);
  const nn::Fp8Scope outer(map_of(options(Fp8Recipe::tensorwise)), true);
  const at::Tensor eight = nn::linear(x, w, {}, nn::WeightLayout::out_in);
  EXPECT_GT(error(eight, plain), 1e-3);
  const nn::Fp8Scope none(nullptr, true);
  EXPECT_TRUE(nn::linear(x, w, {}, nn::WeightLayout::out_in).equal(plain));
}

}  // namespace
