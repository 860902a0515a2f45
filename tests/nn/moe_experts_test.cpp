// The experts of a layer against a loop over tokens, in fp64; then the fused path against the plain one.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/nn.h>
#include <tests/nn/compare.h>

#include <functional>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t hidden = 24, inner = 40;

/// The experts that tokens choose: [N, k].
struct Choice {
  std::string name;
  std::int64_t experts;
  at::Tensor ids;
};

std::vector<Choice> choices() {
  at::manual_seed(5);
  const auto drawn = [](std::int64_t tokens, std::int64_t experts, std::int64_t k) {
    return std::get<1>(at::rand({tokens, experts}).topk(k, -1));
  };
  at::Tensor dropped = drawn(40, 5, 2);
  dropped[3][0] = -1;
  dropped[7].fill_(-1);
  at::Tensor few = drawn(30, 3, 2) * 2;  // experts 1, 3 and 5 get no tokens
  return {{"even", 4, at::arange(64).view({32, 2}) % 4},
          {"drawn", 8, drawn(70, 8, 3)},
          {"all to one", 4, at::full({50, 1}, 2, at::kLong)},
          {"some experts empty", 6, few},
          {"one token", 8, drawn(1, 8, 2)},
          {"no tokens", 3, at::empty({0, 2}, at::kLong)},
          {"some dropped", 5, dropped},
          {"all dropped", 3, at::full({6, 2}, -1, at::kLong)},
          {"large groups", 3, drawn(900, 3, 1)}};  // cut into panels if there are several threads
}

/// x, weights of slots, and the experts' matrices: gates, then ups, then downs.
Tensors inputs(const Choice& choice, std::int64_t width = inner) {
  at::manual_seed(6);
  Tensors all{at::randn({choice.ids.size(0), hidden}), at::rand(choice.ids.sizes()) + 0.1};
  for (const auto& [rows, columns] : {std::pair(width, hidden), {width, hidden}, {hidden, width}})
    for (std::int64_t e = 0; e < choice.experts; ++e) all.push_back(at::randn({rows, columns}) * 0.2);
  return all;
}

nn::ExpertWeights weights_of(const Tensors& all, std::int64_t experts) {
  const auto begin = all.begin() + 2;
  return {.gate = {begin, begin + experts},
          .up = {begin + experts, begin + 2 * experts},
          .down = {begin + 2 * experts, begin + 3 * experts},
          .total = experts};
}

at::Tensor by_loop(const Tensors& all, const Choice& choice) {
  const nn::ExpertWeights w = weights_of(all, choice.experts);
  Tensors tokens;
  for (std::int64_t n = 0; n < choice.ids.size(0); ++n) {
    const at::Tensor x = all[0][n];
    at::Tensor sum = at::zeros_like(x);
    for (std::int64_t j = 0; j < choice.ids.size(1); ++j) {
      const std::int64_t id = choice.ids[n][j].item<std::int64_t>();
      if (id < 0) continue;
      const auto e = static_cast<std::size_t>(id);
      sum = sum + all[1][n][j] * at::mv(w.down[e], at::silu(at::mv(w.gate[e], x)) * at::mv(w.up[e], x));
    }
    tokens.push_back(sum);
  }
  return tokens.empty() ? at::zeros_like(all[0]) : at::stack(tokens);
}

at::Tensor by_experts(const Tensors& all, const Choice& choice, std::int64_t padded_to = 0) {
  nn::Routing routing;
  routing.ids = choice.ids;
  routing.weights = all[1];
  routing.padded_to = padded_to;
  return nn::experts(all[0], routing, weights_of(all, choice.experts));
}

Tensors leaves(const Choice& choice, at::ScalarType type, std::int64_t width = inner) {
  Tensors all;
  for (const at::Tensor& t : inputs(choice, width)) all.push_back(t.to(type).detach().requires_grad_());
  return all;
}

/// A loss with a generic gradient at y.
at::Tensor loss_of(const at::Tensor& y) {
  return (y * at::linspace(-1, 1, std::max<std::int64_t>(y.numel(), 1), y.options()).slice(0, 0, y.numel()).view_as(y))
      .sum();
}

void expect_near(const at::Tensor& got, const at::Tensor& wanted, double bound, const std::string& what) {
  ASSERT_TRUE(got.defined()) << what;
  ASSERT_EQ(got.sizes(), wanted.sizes()) << what;
  if (wanted.numel() == 0) return;
  const double scale = std::max(1e-3, wanted.abs().max().item<double>());
  EXPECT_LE((got.to(at::kDouble) - wanted).abs().max().item<double>() / scale, bound) << what;
}

TEST(MoeExperts, ALoopOverTokens) {
  for (const Choice& choice : choices()) {
    const Tensors expected = leaves(choice, at::kDouble);
    const at::Tensor wanted = by_loop(expected, choice);
    if (wanted.requires_grad()) loss_of(wanted).backward();
    for (const auto& [type, bound] : {std::pair(at::kDouble, 1e-11), {at::kFloat, 1e-5}}) {
      const Tensors all = leaves(choice, type);
      const at::Tensor got = by_experts(all, choice);
      expect_near(got, wanted, bound, choice.name);
      loss_of(got).backward();
      for (std::size_t i = 0; i < all.size(); ++i) {
        const std::string what = choice.name + ", gradient of input " + std::to_string(i);
        // Experts without tokens have zero gradients; in the loop these are undefined.
        const at::Tensor none = at::zeros_like(expected[i]);
        expect_near(all[i].grad(), expected[i].grad().defined() ? expected[i].grad() : none, bound, what);
      }
    }
  }
}

/// The largest number of slots that a choice sends to one expert.
std::int64_t largest_group(const Choice& choice) {
  return nn::permutation_of(choice.ids, choice.experts).counts.max().item<std::int64_t>();
}

// Padding rows of zeros change neither results nor gradients.
TEST(MoeExperts, PaddedGroupsGiveTheSame) {
  for (const Choice& choice : choices()) {
    const Tensors expected = leaves(choice, at::kDouble);
    const at::Tensor wanted = by_experts(expected, choice);
    loss_of(wanted).backward();
    for (const auto& [type, bound] : {std::pair(at::kDouble, 1e-11), {at::kFloat, 1e-5}}) {
      const Tensors all = leaves(choice, type);
      const at::Tensor got = by_experts(all, choice, largest_group(choice) + 3);
      expect_near(got, wanted, bound, choice.name);
      loss_of(got).backward();
      for (std::size_t i = 0; i < all.size(); ++i)
        expect_near(all[i].grad(), expected[i].grad(), bound, choice.name + ", input " + std::to_string(i));
    }
  }
}

// Rows of two sources: results and gradients equal, bit for bit, those of each source alone. (In fp64 LibTorch's silu
// and gelu give different bits for the elements after the last multiple of 16; this width has none.)
TEST(MoeExperts, SourcesApart) {
  const at::Tensor each = at::tensor({5, 0, 9, 3, 0, 0, 2, 40}, at::kLong).view({2, 4});  // [sources, experts]
  const std::int64_t first = 17, second = 42, experts = 4;
  for (const at::ScalarType type : {at::kFloat, at::kDouble})
    for (const bool narrow : {false, true})
      for (const bool gated : {true, false}) {
        const nn::Autocast autocast(narrow, at::kCPU);
        const Choice choice{"", experts, at::zeros({first + second, 1}, at::kLong)};
        const auto run = [&](const at::Tensor& x, const at::Tensor& counts, const Tensors& all,
                             const c10::intrusive_ptr<nn::SourceGradients>& per_source) {
          nn::ExpertWeights w = weights_of(all, experts);
          if (!gated) w.gate.clear();
          const at::Tensor y = nn::experts_of_rows(x, counts, w, per_source);
          y.backward(at::linspace(-1, 1, hidden, y.options()).expand_as(y));
          return y;
        };
        const Tensors together = leaves(choice, type, 48), one = leaves(choice, type, 48),
                      other = leaves(choice, type, 48);
        const auto per_source = c10::make_intrusive<nn::SourceGradients>(2);
        const at::Tensor y = run(together[0], each, together, per_source);
        const at::Tensor y1 = run(one[0].narrow(0, 0, first), each[0], one, {}),
                         y2 = run(other[0].narrow(0, first, second), each[1], other, {});
        EXPECT_TRUE(at::equal(y, at::cat({y1, y2}))) << type << narrow << gated;
        EXPECT_TRUE(at::equal(together[0].grad(), one[0].grad() + other[0].grad())) << type << narrow << gated;
        for (std::size_t i = gated ? 2 : 2 + experts; i < together.size(); ++i) {
          EXPECT_TRUE(at::equal(together[i].grad(), one[i].grad())) << type << narrow << gated << i;
          const Tensors later_source = per_source->take(together[i]);
          ASSERT_EQ(later_source.size(), 1u) << i;
          EXPECT_EQ(later_source[0].scalar_type(), type);
          EXPECT_TRUE(at::equal(later_source[0], other[i].grad())) << type << narrow << gated << i;
          EXPECT_TRUE(per_source->take(together[i]).empty()) << "taken twice";
        }
      }
}

// Megatron's: down(activation(up x)).
TEST(MoeExperts, WithoutGates) {
  const auto activated = [](nn::Activation kind, const at::Tensor& u) {
    if (kind == nn::Activation::relu_squared) return at::relu(u).square();
    return at::gelu(u, kind == nn::Activation::gelu_tanh ? "tanh" : "none");
  };
  for (const nn::Activation kind : {nn::Activation::gelu_erf, nn::Activation::gelu_tanh, nn::Activation::relu_squared})
    for (const Choice& choice : choices()) {
      const auto weights = [&](const Tensors& all) {
        nn::ExpertWeights w = weights_of(all, choice.experts);
        w.gate.clear();
        w.activation = kind;
        return w;
      };
      const Tensors wide = leaves(choice, at::kDouble);
      const nn::ExpertWeights w = weights(wide);
      at::Tensor wanted = at::zeros_like(wide[0]);
      for (std::int64_t j = 0; j < choice.ids.size(1); ++j)
        for (std::int64_t e = 0; e < choice.experts; ++e) {
          const at::Tensor mine = choice.ids.select(1, j).eq(e).to(at::kDouble) * wide[1].select(1, j);  // [N]
          const auto at_e = static_cast<std::size_t>(e);
          wanted = wanted + mine.unsqueeze(1) *
                                at::matmul(activated(kind, at::matmul(wide[0], w.up[at_e].t())), w.down[at_e].t());
        }
      loss_of(wanted).backward();
      for (const auto& [type, bound] : {std::pair(at::kDouble, 1e-11), {at::kFloat, 1e-5}}) {
        const Tensors all = leaves(choice, type);
        nn::Routing routing;
        routing.ids = choice.ids;
        routing.weights = all[1];
        const at::Tensor got = nn::experts(all[0], routing, weights(all));
        expect_near(got, wanted, bound, choice.name);
        loss_of(got).backward();
        for (std::size_t i = 0; i < all.size(); ++i) {
          const bool gate = i >= 2 && i < 2 + static_cast<std::size_t>(choice.experts);
          EXPECT_EQ(all[i].grad().defined(), !gate) << choice.name << " " << i;
          if (!gate) expect_near(all[i].grad(), wide[i].grad(), bound, choice.name + " " + std::to_string(i));
        }
      }
    }
}

TEST(MoeExperts, FrozenExpertsGetNoGradient) {
  const Choice choice = choices()[1];
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Tensors trained = leaves(choice, type);
    Tensors frozen = leaves(choice, type);
    for (std::size_t i = 2; i < frozen.size(); ++i) frozen[i].set_requires_grad(false);
    loss_of(by_experts(trained, choice)).backward();
    loss_of(by_experts(frozen, choice)).backward();
    for (std::size_t i = 0; i < 2; ++i) EXPECT_TRUE(at::equal(frozen[i].grad(), trained[i].grad())) << i;
    for (std::size_t i = 2; i < frozen.size(); ++i) EXPECT_FALSE(frozen[i].grad().defined()) << i;
  }
}

TEST(MoeExperts, GradientsOfWeightsMayComeLater) {
  const Choice choice = choices()[3];
  for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
    const Tensors whole = leaves(choice, type), divided = leaves(choice, type);
    loss_of(by_experts(whole, choice)).backward();
    const auto late = c10::make_intrusive<nn::WeightGradients>();
    at::Tensor loss;
    {
      const nn::WeightGradients::Scope scope(late, /*defer=*/false);
      loss = loss_of(by_experts(divided, choice));
    }
    {
      const nn::WeightGradients::Scope scope(late, /*defer=*/true);
      loss.backward();
    }
    EXPECT_TRUE(at::equal(divided[0].grad(), whole[0].grad()));
    EXPECT_FALSE(divided[2].grad().defined());
    late->compute();
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(divided[i].grad(), whole[i].grad())) << i;
  }
}

// Groups of every size, which the bf16 path pads with zeros.
TEST(MoeExperts, Autocast) {
  for (const Choice& choice : choices()) {
    if (choice.ids.numel() == 0 || choice.ids.max().item<std::int64_t>() < 0) continue;
    const Tensors narrow = leaves(choice, at::kFloat), wide = leaves(choice, at::kDouble);
    {
      const nn::Autocast autocast(true, at::kCPU);
      const at::Tensor y = by_experts(narrow, choice);
      EXPECT_EQ(y.scalar_type(), at::kFloat);
      loss_of(y).backward();
    }
    loss_of(by_experts(wide, choice)).backward();
    double difference = 0;
    for (std::size_t i = 0; i < wide.size(); ++i) {
      EXPECT_EQ(narrow[i].grad().scalar_type(), at::kFloat);
      if (wide[i].grad().norm().item<double>() == 0) {
        EXPECT_EQ(narrow[i].grad().norm().item<double>(), 0) << choice.name << " " << i;
        continue;
      }
      EXPECT_LT(compare::error(narrow[i].grad(), wide[i].grad()), 0.02) << choice.name << " " << i;
      difference = std::max(difference, compare::error(narrow[i].grad(), wide[i].grad()));
    }
    EXPECT_GT(difference, 1e-5) << choice.name;  // it did run in bf16
  }
}

TEST(MoeExperts, WhatIsElsewhereIsRefused) {
  const Choice choice = choices()[0];
  const Tensors all = leaves(choice, at::kFloat);
  nn::Routing routing;
  routing.ids = choice.ids;
  routing.weights = all[1];
  nn::ExpertWeights half = weights_of(all, choice.experts);
  for (Tensors* list : {&half.gate, &half.up, &half.down}) list->resize(2);
  EXPECT_THROW(nn::experts(all[0], routing, half), Error);
}

TEST(MoePermutation, SlotsInTheOrderOfExperts) {
  const at::Tensor ids = at::tensor({2, 0, 1, 2, -1, 0}, at::kLong).view({3, 2});
  const nn::Permutation p = nn::permutation_of(ids, 4);
  EXPECT_TRUE(at::equal(p.counts, at::tensor({2, 1, 2, 0}, at::kLong)));
  EXPECT_TRUE(at::equal(p.order, at::tensor({1, 5, 2, 0, 3}, at::kLong)));
  EXPECT_TRUE(at::equal(p.inverse.view(-1), at::tensor({3, 0, 2, 4, -1, 1}, at::kLong)));
  EXPECT_THROW(nn::permutation_of(ids, 2), Error);

  const nn::Permutation padded = nn::permutation_of(ids, 4, 2);
  EXPECT_TRUE(at::equal(padded.counts, at::full({4}, 2, at::kLong)));
  EXPECT_TRUE(at::equal(padded.order, at::tensor({1, 5, 2, -1, 0, 3, -1, -1}, at::kLong)));
  EXPECT_TRUE(at::equal(padded.inverse.view(-1), at::tensor({4, 0, 2, 5, -1, 1}, at::kLong)));
  EXPECT_EQ(nn::permutation_of(ids, 4, 100).order.size(0), 12) << "no more than tokens";
  EXPECT_THROW(nn::permutation_of(ids, 4, 1), Error) << "two slots of expert 0";
}

TEST(MoePermutation, ThereAndBack) {
  for (const Choice& choice : choices()) {
    const nn::Permutation p = nn::permutation_of(choice.ids, choice.experts);
    const at::Tensor x = at::randn({choice.ids.size(0), hidden});
    const at::Tensor slots = choice.ids.ge(0).sum(1, true).to(at::kFloat);
    const at::Tensor back = nn::unpermute(nn::permute(x, p), p, at::ones(choice.ids.sizes()));
    EXPECT_LT((back - x * slots).abs().sum().item<double>(), 1e-4) << choice.name;
  }
}

}  // namespace
