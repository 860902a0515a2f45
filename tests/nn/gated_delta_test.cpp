#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <tessera/nn/recurrent/gated_delta.h>
#include <tests/nn/compare.h>

#include <cmath>
#include <vector>

namespace tessera::nn {
namespace {

struct Inputs {
  at::Tensor q, k, v, decays, strengths;

  std::vector<at::Tensor*> all() { return {&q, &k, &v, &decays, &strengths}; }
};

Inputs inputs(std::int64_t tokens, at::ScalarType type) {
  at::manual_seed(tokens);
  const auto options = at::TensorOptions(type);
  const auto unit = [&] {
    const at::Tensor x = at::randn({2, tokens, 3, 8}, options);
    return x / x.norm(2, -1, /*keepdim=*/true);
  };
  Inputs in{unit(), unit(), at::randn({2, tokens, 3, 5}, options), -at::rand({2, tokens, 3}, options),
            at::rand({2, tokens, 3}, options)};
  for (at::Tensor* x : in.all()) x->requires_grad_();
  return in;
}

/// Token by token, as in the formula.
at::Tensor one_by_one(const Inputs& in) {
  at::Tensor memory = at::zeros({2, 3, 8, 5}, in.q.options());
  std::vector<at::Tensor> read;
  for (std::int64_t t = 0; t < in.q.size(1); ++t) {
    const at::Tensor k = in.k.select(1, t).unsqueeze(-1), q = in.q.select(1, t).unsqueeze(-1);  // [B, H, K, 1]
    memory = memory * in.decays.select(1, t).exp().unsqueeze(-1).unsqueeze(-1);
    const at::Tensor missing = in.v.select(1, t).unsqueeze(-2) - at::matmul(k.transpose(-1, -2), memory);
    memory = memory + at::matmul(k, missing * in.strengths.select(1, t).unsqueeze(-1).unsqueeze(-1));
    read.push_back(at::matmul(q.transpose(-1, -2), memory).squeeze(-2) / std::sqrt(8.0));
  }
  return at::stack(read, 1);
}

// Sequences shorter than a chunk, of whole chunks, and with a partial chunk.
TEST(GatedDelta, PiecesAreTokenByToken) {
  for (const std::int64_t tokens : {1, 7, 64, 150}) {
    Inputs in = inputs(tokens, at::kFloat), wanted = inputs(tokens, at::kFloat);
    const at::Tensor y = gated_delta_rule(in.q, in.k, in.v, in.decays, in.strengths), expected = one_by_one(wanted);
    EXPECT_EQ(y.sizes(), expected.sizes());
    EXPECT_LE(compare::error(y, expected), 2e-6) << tokens;
    const at::Tensor weights = at::randn_like(y.detach());
    (y * weights).sum().backward();
    (expected * weights).sum().backward();
    const auto got = in.all(), want = wanted.all();
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_LE(compare::error(got[i]->grad(), want[i]->grad()), 2e-5) << tokens << " tokens, input " << i;
  }
}

TEST(GatedDelta, StaysFiniteWhereMemoriesFadeAtOnce) {
  Inputs in = inputs(100, at::kFloat);
  const at::Tensor y = gated_delta_rule(in.q, in.k, in.v, in.decays * 1000, in.strengths);
  y.sum().backward();
  EXPECT_TRUE(at::isfinite(y).all().item<bool>());
  for (const at::Tensor* x : in.all()) EXPECT_TRUE(at::isfinite(x->grad()).all().item<bool>());
}

TEST(GatedDelta, ComputesInFp32) {
  Inputs in = inputs(20, at::kBFloat16);
  EXPECT_EQ(gated_delta_rule(in.q, in.k, in.v, in.decays, in.strengths).scalar_type(), at::kFloat);
}

}  // namespace
}  // namespace tessera::nn
