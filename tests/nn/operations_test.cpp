#include <c10/core/GradMode.h>
#include <tessera/base/error.h>
#include <tessera/nn/gemm.h>
#include <tessera/nn/nn.h>

#include "compare.h"

using namespace tessera;
using compare::expect_same;
using compare::Tensors;

namespace {

struct Operations : testing::Test {
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
  expect_same(
      inputs,
      [&](const Tensors& a) {
        return Tensors{run(a).sum, run(a).normed};
      },
      4e-6);
  expect_same(
      inputs,
      [&](const Tensors& a) {
        const auto out = run(a);
        return Tensors{out.sum, out.normed};
      },
      4e-6);
  expect_same(
      inputs, [&](const Tensors& a) { return Tensors{run(a).normed}; }, 4e-6);
}

TEST_F(Operations, AddLayerNormOfNothing) {
  const auto run = [](const Tensors& a) { return nn::add_layer_norm(a[0], {}, {}, a[1], a[2], 1e-5); };
  const Tensors inputs{at::randn({30, 24}), at::randn({24}), at::randn({24})};
  expect_same(inputs, [&](const Tensors& a) {
    const auto out = run(a);
    return Tensors{out.sum, out.normed};
  });
  // As in a block: the sum goes on, x itself is not used again.
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
  EXPECT_THROW(nn::embed(ids, at::randn({19, 8}), at::randn({12, 8}), 6), Error) << "positions run out";
  EXPECT_ANY_THROW(nn::embed(ids + 19, at::randn({19, 8}), at::randn({12, 8}))) << "id outside the vocabulary";
  EXPECT_ANY_THROW(nn::embed(ids - 19, at::randn({19, 8}), at::randn({12, 8}))) << "negative id";
}

TEST_F(Operations, CausalAttention) {
  for (const std::int64_t t : {1, 5, 70})
    expect_same(
        {at::randn({2, t, 3 * 32})}, [](const Tensors& a) { return Tensors{nn::causal_attention(a[0], 4, 0.35)}; },
        4e-6);
}

TEST_F(Operations, CachedAttentionContinuesTheSequence) {
  const std::int64_t b = 2, t = 9, heads = 2, d = 4;
  const at::Tensor qkv = at::randn({b, t, 3 * heads * d});
  const at::Tensor whole = nn::causal_attention(qkv, heads, 0.5);
  const at::Tensor parts = qkv.view({b, t, 3, heads, d}).permute({2, 0, 3, 1, 4});
  for (const std::int64_t past : {0, 4, 8}) {
    const at::Tensor out = nn::cached_attention(parts[0].slice(2, past), parts[1], parts[2], 0.5);
    EXPECT_LT(compare::error(out, whole.slice(1, past)), 1e-6) << past;
  }
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
