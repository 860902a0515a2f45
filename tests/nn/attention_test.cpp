#include <ATen/Parallel.h>

#include <tessera/base/error.h>
#include <tessera/nn/attention/attention_pieces.h>
#include <tessera/nn/attention/flash_attention.h>
#include <tessera/nn/attention/two_way_attention.h>
#include <tessera/nn/nn.h>

#include <limits>

#include "compare.h"

using namespace tessera;
using compare::expect_same;
using compare::Tensors;

namespace {

/// The definition, in fp64: scores of every pair of tokens, with masked pairs at -infinity.
at::Tensor by_definition(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const nn::DocumentStarts& documents, const nn::AttentionOptions& options) {
  const std::int64_t b = q.size(0), t = q.size(1), heads = q.size(2), group = heads / k.size(2);
  const auto wide = [](const at::Tensor& x) { return x.to(at::kDouble).transpose(1, 2); };
  const at::Tensor keys = wide(k).repeat_interleave(group, 1), values = wide(v).repeat_interleave(group, 1);
  at::Tensor scores = at::matmul(wide(q), keys.transpose(2, 3)) * options.scale;  // [B, H, T, T]
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  const auto document_of = [&](std::int64_t flat) {
    std::int64_t d = documents.empty() ? flat / t : 0;
    for (const std::int64_t start : documents) d += start <= flat;
    return d;
  };
  const at::Tensor hidden = at::empty({b, 1, t, t}, at::kBool);
  auto* is_hidden = hidden.mutable_data_ptr<bool>();
  for (std::int64_t row = 0; row < b; ++row)
    for (std::int64_t i = 0; i < t; ++i)
      for (std::int64_t j = 0; j < t; ++j)
        *is_hidden++ = j > i || (options.window > 0 && i - j >= options.window) ||
                       document_of(row * t + i) != document_of(row * t + j);
  scores = scores.masked_fill(hidden, -std::numeric_limits<double>::infinity());
  return at::matmul(at::softmax(scores, -1), values).transpose(1, 2).reshape({b, t, -1});
}

struct Case {
  std::int64_t b, t, heads, key_heads, d, window;
  nn::DocumentStarts documents;
};

const std::vector<Case> cases = {
    {2, 1, 4, 4, 8, 0, {}},
    {2, 70, 4, 2, 8, 0, {}},
    {1, 33, 6, 1, 16, 0, {}},
    {2, 20, 4, 2, 8, 0, {0, 3, 4, 20, 29}},
    {2, 40, 2, 2, 8, 7, {}},
    {2, 40, 4, 2, 8, 7, {0, 5, 30, 40, 60, 79}},
    {1, 16, 2, 1, 8, 16, {}},
    {1, 16, 2, 1, 8, 1, {}},
    {2, 140, 4, 2, 16, 0, {}},
    {2, 70, 2, 1, 32, 0, {0, 3, 68, 70, 100, 139}},
    {2, 200, 4, 2, 16, 70, {}},
    {1, 200, 2, 1, 16, 5, {}},
    {2, 90, 2, 2, 32, 20, {0, 3, 88, 90, 150, 179}},
};

TEST(Attention, FollowsTheDefinitionForwardAndBackward) {
  at::manual_seed(0);
  for (const Case& c : cases) {
    const nn::AttentionOptions options{.scale = 0.3, .window = c.window};
    const Tensors inputs{at::randn({c.b, c.t, c.heads, c.d}), at::randn({c.b, c.t, c.key_heads, c.d}),
                         at::randn({c.b, c.t, c.key_heads, c.d})};
    SCOPED_TRACE(concat("T ", c.t, " heads ", c.heads, "/", c.key_heads, " window ", c.window, " documents ",
                        c.documents.size()));
    const at::Tensor got = nn::attention(inputs[0], inputs[1], inputs[2], c.documents, options);
    EXPECT_LT(compare::error(got, by_definition(inputs[0], inputs[1], inputs[2], c.documents, options)), 2e-6);
    // The fused path against the composition (fp64); the next line checks the composition's values against the
    // definition.
    expect_same(
        inputs, [&](const Tensors& a) { return Tensors{nn::attention(a[0], a[1], a[2], c.documents, options)}; }, 4e-6);
    const at::Tensor composed = nn::attention(inputs[0].to(at::kDouble), inputs[1].to(at::kDouble),
                                              inputs[2].to(at::kDouble), c.documents, options);
    EXPECT_LT(compare::error(composed, by_definition(inputs[0], inputs[1], inputs[2], c.documents, options)), 1e-12);
  }
}

TEST(Attention, CapsScoresForwardAndBackward) {
  at::manual_seed(0);
  for (const Case& c : cases)
    for (const bool fused : {true, false}) {
      SCOPED_TRACE(concat("T ", c.t, " heads ", c.heads, "/", c.key_heads, " window ", c.window, " documents ",
                          c.documents.size(), fused ? " fused" : ""));
      const nn::AttentionOptions options{.scale = 1.3, .softcap = 1.7, .window = c.window};
      Tensors ours, theirs;
      for (const std::int64_t heads : {c.heads, c.key_heads, c.key_heads}) {
        theirs.push_back(at::randn({c.b, c.t, heads, c.d}, at::kDouble).set_requires_grad(true));
        ours.push_back(theirs.back().detach().to(fused ? at::kFloat : at::kDouble).clone().set_requires_grad(true));
      }
      const at::Tensor got = nn::attention(ours[0], ours[1], ours[2], c.documents, options);
      const at::Tensor wanted = by_definition(theirs[0], theirs[1], theirs[2], c.documents, options);
      const at::Tensor weights = at::randn(wanted.sizes(), at::kDouble);
      (got * weights.to(got.scalar_type())).sum().backward();
      (wanted * weights).sum().backward();
      EXPECT_LT(compare::error(got.detach(), wanted.detach()), fused ? 2e-6 : 1e-12);
      double largest = 0;
      for (const at::Tensor& x : theirs) largest = std::max(largest, x.grad().norm().item<double>());
      for (std::size_t i = 0; i < ours.size(); ++i)
        EXPECT_LT((ours[i].grad().to(at::kDouble) - theirs[i].grad()).norm().item<double>() / largest,
                  fused ? 4e-6 : 1e-12)
            << "input " << i;
    }
}

TEST(Attention, PackedQueriesKeysAndValues) {
  at::manual_seed(0);
  const nn::DocumentStarts documents{0, 4, 9, 12};
  expect_same(
      {at::randn({2, 9, 3 * 16})},
      [&](const Tensors& a) { return Tensors{nn::packed_attention(a[0], 2, documents, {.scale = 0.4})}; }, 4e-6);
  const at::Tensor qkv = at::randn({2, 9, 48}), parts = qkv.view({2, 9, 3, 2, 8});
  EXPECT_LT(
      compare::error(nn::packed_attention(qkv, 2, {}, {.scale = 0.4}),
                     nn::attention(parts.select(2, 0), parts.select(2, 1), parts.select(2, 2), {}, {.scale = 0.4})),
      1e-6);
}

TEST(Attention, CachedContinuesTheSequence) {
  at::manual_seed(0);
  const std::int64_t b = 2, t = 9, heads = 4, own = 2, d = 4;
  const at::Tensor q = at::randn({b, t, heads, d}), k = at::randn({b, t, own, d}), v = at::randn({b, t, own, d});
  for (const auto& [window, cap] : {std::pair<std::int64_t, double>{0, 0}, {3, 0}, {0, 0.7}, {3, 0.7}}) {
    const nn::AttentionOptions options{.scale = 0.5, .softcap = cap, .window = window};
    const at::Tensor whole = nn::attention(q, k, v, {}, options);
    for (const std::int64_t past : {0, 4, 8}) {
      const at::Tensor out = nn::cached_attention(q.slice(1, past), k.transpose(1, 2), v.transpose(1, 2), options);
      EXPECT_LT(compare::error(out, whole.slice(1, past)), 1e-6) << past << " window " << window;
    }
  }
}

// Encoders: no token attends to the padding after a row's tokens, whatever it contains, and the padding's keys get no
// gradient. Covers head widths of our own kernels (16) and of LibTorch's (8).
TEST(Attention, BothWaysFollowsTheDefinitionForwardAndBackward) {
  at::manual_seed(0);
  for (const std::int64_t d : {8, 16})
    for (const std::vector<std::int64_t>& lengths :
         {std::vector<std::int64_t>{}, {90, 90}, {90, 1}, {64, 65}, {3, 77}}) {
      const Tensors inputs{at::randn({2, 90, 3, d}), at::randn({2, 90, 3, d}), at::randn({2, 90, 3, d})};
      const auto definition = [&](const Tensors& a) {
        at::Tensor scores = at::matmul(a[0].transpose(1, 2), a[1].transpose(1, 2).transpose(2, 3)) * 0.3;
        for (std::size_t row = 0; row < lengths.size(); ++row)
          scores = scores.masked_fill(at::arange(2)
                                          .eq(static_cast<std::int64_t>(row))
                                          .view({2, 1, 1, 1})
                                          .logical_and(at::arange(90).ge(lengths[row]).view({1, 1, 1, 90})),
                                      -std::numeric_limits<double>::infinity());
        return at::matmul(at::softmax(scores, -1), a[2].transpose(1, 2)).transpose(1, 2).reshape({2, 90, 3 * d});
      };
      SCOPED_TRACE(concat("D ", d, " lengths ", c10::str(lengths)));
      const auto ours = [&](const Tensors& a) {
        return Tensors{nn::two_way_attention(a[0], a[1], a[2], lengths, 0.3)};
      };
      const Tensors wide{inputs[0].to(at::kDouble), inputs[1].to(at::kDouble), inputs[2].to(at::kDouble)};
      EXPECT_LT(compare::error(ours(wide)[0], definition(wide)), 1e-12);
      expect_same(inputs, ours, 4e-6);
    }
  const at::Tensor x = at::randn({2, 4, 1, 16});
  for (const std::vector<std::int64_t>& wrong : {std::vector<std::int64_t>{4}, {4, 5}, {0, 4}})
    EXPECT_THROW(nn::two_way_attention(x, x, x, wrong, 1), Error);
}

TEST(Attention, PiecesCostWhatTheyContain) {
  EXPECT_TRUE(nn::attention_pieces({}, 3, 100, 0).empty());
  EXPECT_TRUE(nn::attention_pieces({0, 100, 200}, 3, 100, 100).empty());
  std::int64_t pairs = 0;
  for (const nn::Piece& p : nn::attention_pieces({}, 1, 1000, 10)) pairs += (p.end - p.first) * (p.end - p.begin);
  EXPECT_LE(pairs, 1000 * 19);
}

TEST(Attention, PositionsCountFromTheStartOfADocument) {
  const at::Tensor positions = nn::document_positions({0, 3, 4}, 2, 4);
  EXPECT_TRUE(positions.equal(at::tensor({0, 1, 2, 0, 0, 1, 2, 3}, at::kLong))) << positions;
  EXPECT_TRUE(nn::document_positions({}, 2, 3).equal(at::tensor({0, 1, 2, 0, 1, 2}, at::kLong)));
}

// Two heads on eight threads, so that queries are also divided. Results and gradients equal those of one thread bit for
// bit, and LibTorch's to rounding.
TEST(Attention, FlashIsTheSameOnAnyNumberOfThreads) {
  const int before = at::get_num_threads();
  at::manual_seed(7);
  const auto rows = [](std::int64_t tokens) { return at::randn({1, tokens, 2, 64}).transpose(1, 2); };
  for (const bool causal : {true, false}) {
    const nn::AttentionRectangle a = {
        .q = rows(300), .k = rows(causal ? 300 : 77), .v = rows(causal ? 300 : 77), .causal = causal, .scale = 0.125};
    const at::Tensor dy = rows(300);
    const auto all = [&](int threads) {
      at::set_num_threads(threads);
      const auto [out, log_sums] = nn::flash_attention(a);
      const auto [dq, dk, dv] = nn::flash_attention_backward(dy, a, out, log_sums);
      return std::vector<at::Tensor>{out, log_sums, dq, dk, dv};
    };
    const std::vector<at::Tensor> one = all(1), eight = all(8);
    at::set_num_threads(before);
    const auto [out, log_sums] =
        at::_scaled_dot_product_flash_attention_for_cpu(a.q, a.k, a.v, 0.0, causal, /*attn_mask=*/{}, a.scale);
    const auto [dq, dk, dv] = at::_scaled_dot_product_flash_attention_for_cpu_backward(
        dy, a.q, a.k, a.v, out, log_sums, 0.0, causal, /*attn_mask=*/{}, a.scale);
    const std::vector<at::Tensor> theirs = {out, log_sums, dq, dk, dv};
    for (std::size_t i = 0; i < one.size(); ++i) {
      EXPECT_TRUE(eight[i].equal(one[i])) << i;
      EXPECT_TRUE(at::allclose(one[i], theirs[i], 1e-5, 1e-5)) << i << " " << (one[i] - theirs[i]).abs().max();
    }
  }
}

TEST(Attention, RefusesStartsThatCannotBe) {
  const at::Tensor x = at::randn({2, 4, 1, 2});
  for (const nn::DocumentStarts& wrong :
       {nn::DocumentStarts{0, 3, 3, 4}, {1, 4}, {0, 8}, {0, 3}, {0, 4, 2}, {-1, 0, 4}})
    EXPECT_THROW(nn::attention(x, x, x, wrong, {}), Error);
}

}  // namespace
