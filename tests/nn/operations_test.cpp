#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/nn.h>

#include "compare.h"

using namespace tessera;
using compare::expect_same;
using compare::Tensors;

namespace {

struct Operations : ::testing::Test {
  void SetUp() override { at::manual_seed(0); }
};

TEST_F(Operations, LinearWithAndWithoutBias) {
  expect_same({at::randn({3, 5, 12}), at::randn({12, 20}), at::randn({20})},
              [](const Tensors& a) { return Tensors{nn::linear(a[0], a[1], a[2])}; });
  expect_same({at::randn({7, 12}), at::randn({12, 33})},
              [](const Tensors& a) { return Tensors{nn::linear(a[0], a[1], {})}; });
}

TEST_F(Operations, LinearFromANonContiguousInputAndGradient) {
  expect_same({at::randn({12, 7}), at::randn({12, 9}), at::randn({9})},
              [](const Tensors& a) { return Tensors{nn::linear(a[0].t(), a[1], a[2]).t().contiguous()}; });
}

TEST_F(Operations, LinearWithTheWeightStoredOutputFirst) {
  const auto out_in = nn::WeightLayout::out_in;
  expect_same({at::randn({3, 5, 12}), at::randn({20, 12}), at::randn({20})},
              [&](const Tensors& a) { return Tensors{nn::linear(a[0], a[1], a[2], out_in)}; });
  expect_same({at::randn({7, 12}), at::randn({33, 12})},
              [&](const Tensors& a) { return Tensors{nn::linear(a[0], a[1], {}, out_in)}; });
  const at::Tensor x = at::randn({4, 6}), weight = at::randn({8, 6}).set_requires_grad(true);
  nn::linear(x, weight, {}, out_in).sum().backward();
  EXPECT_TRUE(weight.grad().is_contiguous()) << "the gradient has the weight's layout";
}

TEST_F(Operations, FrozenWeightsGetNoGradient) {
  const at::Tensor x = at::randn({4, 6}).set_requires_grad(true), weight = at::randn({6, 8});
  nn::linear(x, weight, {}).sum().backward();
  EXPECT_LT(compare::error(x.grad(), weight.sum(1).expand({4, 6})), 1e-6);
  EXPECT_FALSE(weight.grad().defined());
}

TEST_F(Operations, AutocastRunsProductsInBf16AndKeepsGradientsFp32) {
  const at::Tensor x = at::randn({64, 96}).set_requires_grad(true),
                   weight = at::randn({96, 80}).set_requires_grad(true);
  at::Tensor y;
  {
    const nn::Autocast bf16(true, at::kCPU);
    y = nn::linear(x, weight, {});
  }
  const at::Tensor exact = at::mm(x.detach().to(at::kDouble), weight.detach().to(at::kDouble));
  EXPECT_EQ(y.scalar_type(), at::kFloat);
  EXPECT_LT(compare::error(y.detach(), exact), 1e-2);
  EXPECT_GT(compare::error(y.detach(), exact), 1e-4) << "bf16 has 8 bits";
  y.sum().backward();  // outside the guard: in the recorded type
  EXPECT_EQ(weight.grad().scalar_type(), at::kFloat);
  const at::Tensor expected = x.detach().to(at::kDouble).sum(0).unsqueeze(1).expand({96, 80});
  EXPECT_LT(compare::error(weight.grad(), expected), 1e-2);
  EXPECT_GT(compare::error(weight.grad(), expected), 1e-5);
}

TEST_F(Operations, RmsNorm) {
  expect_same({at::randn({8, 3, 40}) + 2, at::randn({40})},
              [](const Tensors& a) { return Tensors{nn::rms_norm(a[0], a[1], 1e-5)}; });
  const Tensors inputs{at::randn({300, 64}), at::randn({300, 64}), at::randn({64})};
  const auto run = [](const Tensors& a) { return nn::add_rms_norm(a[0], a[1], a[2], 1e-5); };
  expect_same(
      inputs,
      [&](const Tensors& a) {
        const auto out = run(a);
        return Tensors{out.sum, out.normed};
      },
      4e-6);
  expect_same(inputs, [&](const Tensors& a) { return Tensors{run(a).normed}; }, 4e-6);
  expect_same(
      {inputs[0], inputs[2]},
      [&](const Tensors& a) {
        const auto out = nn::add_rms_norm(a[0], {}, a[1], 1e-5);
        return Tensors{out.sum * out.normed};
      },
      4e-6);
}

TEST_F(Operations, SwiGlu) {
  expect_same({at::randn({9, 11, 37}) * 3, at::randn({9, 11, 37})},
              [](const Tensors& a) { return Tensors{nn::swiglu(a[0], a[1])}; });
}

TEST_F(Operations, Rotary) {
  const at::Tensor frequencies = at::rand({8});
  const auto shared = nn::rotary_table(at::arange(3, 8), frequencies, 1.5);                      // [5, 8]
  const auto by_row = nn::rotary_table(at::randint(0, 90, {2 * 5}, at::kLong), frequencies, 1);  // [10, 8]
  for (const auto& table : {shared, by_row})
    expect_same({at::randn({2, 5, 3, 16})}, [&](const Tensors& a) { return Tensors{nn::rotary(a[0], table)}; });
  EXPECT_THROW(nn::rotary(at::randn({2, 5, 3, 18}), shared), Error);
  EXPECT_THROW(nn::rotary(at::randn({2, 7, 3, 16}), shared), Error);
}

TEST_F(Operations, ProductsAccumulateAndTakeTransposedViews) {
  for (const std::int64_t n : {1, 5, 64}) {
    const at::Tensor a = at::randn({n, 17}), b = at::randn({23, 17}), out = at::ones({n, 23});
    nn::multiply(out, a, b.t(), /*accumulate=*/true);
    EXPECT_LT(compare::error(out, at::mm(a.to(at::kDouble), b.t().to(at::kDouble)) + 1), 1e-6);
    const at::Tensor transposed = at::empty({17, 23});
    nn::multiply(transposed, a.t(), out);
    EXPECT_LT(compare::error(transposed, at::mm(a.t().to(at::kDouble), out.to(at::kDouble))), 1e-6);
  }
}

// The same on processors with and without instructions for the type: one rounding, of an fp32 sum.
TEST_F(Operations, ProductsOfHalvesAreRoundedOnce) {
  for (const at::ScalarType half : {at::kBFloat16, at::kHalf})
    for (const std::int64_t n : {1, 5, 64}) {
      const at::Tensor a = at::randn({n, 170}).to(half), b = at::randn({23, 170}).to(half);
      const at::Tensor exact = at::mm(a.to(at::kDouble), b.t().to(at::kDouble)), out = at::empty({n, 23});
      nn::multiply_half(out, a, b.t());
      EXPECT_TRUE(at::equal(out, out.to(half).to(at::kFloat)));
      EXPECT_LT(compare::error(out, exact), 1.2 * compare::error(exact.to(half), exact));
      const at::Tensor first = at::randn({n, 23}), sum = first.clone();
      nn::multiply_half(sum, a, b.t(), /*accumulate=*/true);
      EXPECT_TRUE(at::equal(sum, first + out));
      const at::Tensor transposed = at::empty({23, n});
      nn::multiply_half(transposed, b, a.t());
      EXPECT_LT(compare::error(transposed.t(), exact), 1.2 * compare::error(exact.to(half), exact));
    }
}

TEST_F(Operations, AddBias) {
  expect_same({at::randn({4, 6, 10}), at::randn({4, 6, 10}), at::randn({10})},
              [](const Tensors& a) { return Tensors{nn::add_bias(a[0], a[1], a[2])}; });
  expect_same({at::randn({4, 10}), at::randn({4, 10})},
              [](const Tensors& a) { return Tensors{nn::add_bias(a[0], a[1], {})}; });
}

TEST_F(Operations, BiasGelu) {
  expect_same({at::randn({9, 11, 37}) * 3, at::randn({37})},
              [](const Tensors& a) { return Tensors{nn::bias_gelu_tanh(a[0], a[1])}; });
  expect_same({at::randn({50, 64})}, [](const Tensors& a) { return Tensors{nn::bias_gelu_tanh(a[0], {})}; });
}

TEST_F(Operations, LayerNorm) {
  expect_same({at::randn({8, 3, 40}) + 2, at::randn({40}), at::randn({40})},
              [](const Tensors& a) { return Tensors{nn::layer_norm(a[0], a[1], a[2], 1e-5)}; });
}

TEST_F(Operations, AddLayerNormUsingEitherOrBothOutputs) {
  const Tensors inputs{at::randn({300, 64}), at::randn({300, 64}), at::randn({64}), at::randn({64}), at::randn({64})};
  const auto run = [](const Tensors& a) { return nn::add_layer_norm(a[0], a[1], a[2], a[3], a[4], 1e-5); };
  expect_same(inputs, [&](const Tensors& a) { return Tensors{run(a).sum, run(a).normed}; }, 4e-6);
  expect_same(
      inputs,
      [&](const Tensors& a) {
        const auto out = run(a);
        return Tensors{out.sum, out.normed};
      },
      4e-6);
  expect_same(inputs, [&](const Tensors& a) { return Tensors{run(a).normed}; }, 4e-6);
}

TEST_F(Operations, AddLayerNormOfNothing) {
  const auto run = [](const Tensors& a) { return nn::add_layer_norm(a[0], {}, {}, a[1], a[2], 1e-5); };
  const Tensors inputs{at::randn({30, 24}), at::randn({24}), at::randn({24})};
  expect_same(inputs, [&](const Tensors& a) {
    const auto out = run(a);
    return Tensors{out.sum, out.normed};
  });
  // As in a block, the sum becomes the residual stream and x itself is not used again.
  expect_same(inputs, [&](const Tensors& a) {
    const auto out = run({a[0] * 2, a[1], a[2]});
    return Tensors{out.sum * out.normed};
  });
}

TEST_F(Operations, Embed) {
  const at::Tensor ids = at::randint(0, 19, {3, 7}, at::kLong);
  expect_same({ids, at::randn({19, 8}), at::randn({12, 8})},
              [](const Tensors& a) { return Tensors{nn::embed(a[0], a[1], a[2])}; });
  expect_same({ids, at::randn({19, 8}), at::randn({12, 8})},
              [](const Tensors& a) { return Tensors{nn::embed(a[0], a[1], a[2], 5)}; });
  EXPECT_THROW(nn::embed(ids, at::randn({19, 8}), at::randn({12, 8}), 6), Error) << "too few positions";
  EXPECT_ANY_THROW(nn::embed(ids + 19, at::randn({19, 8}), at::randn({12, 8}))) << "id outside the vocabulary";
  EXPECT_ANY_THROW(nn::embed(ids - 19, at::randn({19, 8}), at::randn({12, 8}))) << "negative id";
}

TEST_F(Operations, CausalAttention) {
  for (const std::int64_t t : {1, 5, 70})
    expect_same(
        {at::randn({2, t, 3 * 32})},
        [](const Tensors& a) { return Tensors{nn::packed_attention(a[0], 4, {}, {.scale = 0.35})}; }, 4e-6);
}

TEST_F(Operations, FusedOperationsWorkWithoutGradients) {
  const c10::NoGradGuard no_grad;
  const at::Tensor x = at::randn({2, 4, 8}).set_requires_grad(true), w = at::randn({8});
  EXPECT_FALSE(nn::layer_norm(x, w, w, 1e-5).requires_grad());
  EXPECT_FALSE(nn::bias_gelu_tanh(x, w).requires_grad());
  EXPECT_FALSE(nn::linear(x, at::randn({8, 3}), {}).requires_grad());
  EXPECT_FALSE(nn::linear_cross_entropy(x, at::randn({5, 8}), at::zeros({2, 4}, at::kLong), 1).requires_grad());
}

TEST_F(Operations, ParametersMayBeViewsOfAFlatBufferAndGradientsAccumulate) {
  const at::Tensor flat = at::randn({200}), flat_grad = at::ones({200});
  const auto view = [](const at::Tensor& f, std::int64_t offset, at::IntArrayRef shape) {
    return f.narrow(0, offset, c10::multiply_integers(shape)).view(shape);
  };
  const auto leaf = [&](std::int64_t offset, at::IntArrayRef shape) {
    at::Tensor p = view(flat, offset, shape).detach().set_requires_grad(true);
    p.mutable_grad() = view(flat_grad, offset, shape);
    return p;
  };
  const at::Tensor weight = leaf(0, {6, 8}), bias = leaf(64, {8}), norm = leaf(80, {8}), norm_bias = leaf(96, {8}),
                   head = leaf(112, {10, 8});
  const at::Tensor x = at::randn({2, 5, 6}), labels = at::randint(0, 10, {2, 5}, at::kLong);
  const auto run = [&](const Tensors& p) {
    const at::Tensor h = nn::bias_gelu_tanh(nn::linear(x.to(p[0].scalar_type()), p[0], {}), p[1]);
    return nn::linear_cross_entropy(nn::layer_norm(h, p[2], p[3], 1e-5), p[4], labels, 0.5);
  };
  Tensors wide;
  for (const at::Tensor& p : {weight, bias, norm, norm_bias, head})
    wide.push_back(p.detach().to(at::kDouble).set_requires_grad(true));
  const Tensors parameters{weight, bias, norm, norm_bias, head};
  for (int micro_batch = 0; micro_batch < 2; ++micro_batch) run(parameters).backward(), run(wide).backward();
  for (std::size_t i = 0; i < wide.size(); ++i) {
    EXPECT_LT(compare::error(parameters[i].grad(), wide[i].grad() + 1), 3e-6) << i;
    EXPECT_TRUE(parameters[i].grad().is_alias_of(flat_grad)) << "gradient " << i << " left the flat buffer";
  }
}

}  // namespace
