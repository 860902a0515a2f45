// Dropout by position, of activations and of attention weights: parts draw the same numbers as the whole, in every
// type. Gradients are compared with autograd through the same factors written out.
#include <gtest/gtest.h>

#include <torch/csrc/autograd/autograd.h>

#include <ATen/ATen.h>

#include <tessera/kernels/cpu/dropout.h>
#include <tessera/nn/attention.h>
#include <tessera/nn/attention/dropout_attention.h>
#include <tessera/nn/dropout.h>

#include <cmath>
#include <limits>
#include <numeric>

namespace tessera::nn {
namespace {

at::Tensor ones(at::IntArrayRef sizes) { return at::ones(sizes, at::kFloat); }

TEST(Dropout, drops_its_share_and_keeps_the_mean) {
  const at::Tensor y = dropout(ones({8, 64, 256}), 0.3, {.key = 5});
  const double n = static_cast<double>(y.numel());
  EXPECT_NEAR(y.eq(0).sum().item<double>() / n, 0.3, 5 * std::sqrt(0.21 / n));
  EXPECT_FLOAT_EQ(y.max().item<float>(), 1 / 0.7f);
  EXPECT_TRUE(dropout(ones({2, 3, 4}), 0, RandomPlace{}).equal(ones({2, 3, 4})));
  EXPECT_EQ(dropout(ones({2, 3, 4}), 1, RandomPlace{}).sum().item<float>(), 0);
  EXPECT_ANY_THROW((void)dropout(ones({2, 3}), 1.5, RandomPlace{}));
  EXPECT_ANY_THROW((void)dropout(ones({3}), 0.5, RandomPlace{}));
}

TEST(Dropout, parts_draw_what_the_whole_draws) {
  const RandomPlace place{.key = 9, .row = 2};
  const at::Tensor whole = dropout(ones({4, 6, 20}), 0.5, place);
  RandomPlace rows = place, tokens = place, columns = place, zigzag = place;
  rows.row = 4, tokens.token = 3, columns.column = 7;
  zigzag.tokens = std::make_shared<const std::vector<std::int64_t>>(std::vector<std::int64_t>{0, 1, 4, 5});
  EXPECT_TRUE(dropout(ones({2, 6, 20}), 0.5, rows).equal(whole.narrow(0, 2, 2)));
  EXPECT_TRUE(dropout(ones({4, 3, 20}), 0.5, tokens).equal(whole.narrow(1, 3, 3)));
  EXPECT_TRUE(dropout(ones({4, 6, 5}), 0.5, columns).equal(whole.narrow(2, 7, 5)));
  EXPECT_TRUE(dropout(ones({4, 4, 20}), 0.5, zigzag).equal(at::cat({whole.narrow(1, 0, 2), whole.narrow(1, 4, 2)}, 1)));
  EXPECT_FALSE(dropout(ones({4, 6, 20}), 0.5, place.at(1)).equal(whole));
}

TEST(Dropout, is_the_same_in_every_type_and_backwards) {
  const RandomPlace place{.key = 3};
  const at::Tensor kept = dropout(ones({2, 5, 33}), 0.25, place).ne(0);
  for (const auto type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor x = ones({2, 5, 33}).to(type).requires_grad_();
    const at::Tensor y = dropout(x, 0.25, place);
    EXPECT_EQ(y.scalar_type(), type);
    EXPECT_TRUE(y.ne(0).equal(kept)) << type;
    y.sum().backward();
    EXPECT_TRUE(x.grad().equal(y.detach())) << type;
  }
}

/// The factors of attention weights [B, heads, T, T], from the definition.
at::Tensor factors(std::int64_t b, std::int64_t heads, std::int64_t t, const WeightDropout& dropout) {
  const at::Tensor all = at::empty({b, heads, t, t}, at::kDouble);
  auto* at = all.data_ptr<double>();
  for (std::int64_t row = 0; row < b; ++row)
    for (std::int64_t head = 0; head < heads; ++head)
      for (std::int64_t query = 0; query < t; ++query)
        for (std::int64_t key = 0; key < t; ++key) {
          const auto mix = [](std::uint64_t k, std::int64_t n) {
            return kernels::mixed_key(k, static_cast<std::uint64_t>(n));
          };
          const std::uint64_t line =
              mix(mix(mix(dropout.place.key, dropout.place.row + row), query), dropout.place.head + head);
          const double u = kernels::random_number(line, static_cast<std::uint32_t>(key)) / 4294967296.0;
          *at++ = u < dropout.p ? 0 : 1 / (1 - dropout.p);
        }
  return all;
}

TEST(DropoutAttention, equals_the_formula_with_its_gradients) {
  const WeightDropout dropped{.p = 0.3, .place = {.key = 17, .row = 5, .head = 2}};
  for (const bool causal : {true, false}) {
    const auto leaf = [] { return at::randn({2, 3, 40, 8}, at::kDouble).requires_grad_(); };
    const at::Tensor q = leaf(), k = leaf(), v = leaf(), dy = at::randn({2, 3, 40, 8}, at::kDouble);
    const double scale = 0.4;
    at::Tensor scores = at::matmul(q, k.transpose(2, 3)) * scale;
    if (causal)
      scores = scores.masked_fill(at::ones({40, 40}, at::kBool).tril().logical_not(),
                                  -std::numeric_limits<double>::infinity());
    const at::Tensor wanted = at::matmul(at::softmax(scores, -1) * factors(2, 3, 40, dropped), v);
    const auto expected = torch::autograd::grad({wanted}, {q, k, v}, {dy});
    const at::Tensor got = dropout_attention({q, k, v, {}, causal, scale}, dropped);
    const auto gradients = torch::autograd::grad({got}, {q, k, v}, {dy});
    EXPECT_LT((got - wanted).abs().max().item<double>(), 1e-7);  // factors are computed in fp32
    for (std::size_t i = 0; i < 3; ++i) EXPECT_LT((gradients[i] - expected[i]).abs().max().item<double>(), 1e-6) << i;
  }
}

TEST(DropoutAttention, of_documents_and_windows_is_the_masked_formula) {
  const std::int64_t t = 24;
  const AttentionOptions options{.scale = 0.5, .window = 7, .dropout = 0.2, .random = {.key = 4}};
  const at::Tensor q = at::randn({2, t, 4, 8}), k = at::randn({2, t, 2, 8}), v = at::randn({2, t, 2, 8});
  const DocumentStarts documents = {0, 10, t, t + 5};
  at::Tensor seen = at::zeros({2, 1, t, t}, at::kBool);
  for (std::int64_t row = 0; row < 2; ++row)
    for (std::int64_t i = 0; i < t; ++i)
      for (std::int64_t j = 0; j <= i; ++j) {
        const std::int64_t border = row == 0 ? 10 : 5;
        seen[row][0][i][j] = i - j < 7 && (i < border) == (j < border);
      }
  const auto by_head = [](const at::Tensor& x) { return x.repeat_interleave(4 / x.size(2), 2).transpose(1, 2); };
  const at::Tensor scores = (at::matmul(by_head(q), by_head(k).transpose(2, 3)) * 0.5)
                                .masked_fill(seen.logical_not(), -std::numeric_limits<double>::infinity());
  const at::Tensor weights = at::softmax(scores, -1) * factors(2, 4, t, {0.2, options.random}).to(at::kFloat);
  const at::Tensor wanted = at::matmul(weights, by_head(v)).transpose(1, 2).flatten(2);
  EXPECT_LT((attention(q, k, v, documents, options) - wanted).abs().max().item<double>(), 1e-5);
}

}  // namespace
}  // namespace tessera::nn
