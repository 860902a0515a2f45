// Routers, balancing losses and capacity against short references that process one token at a time.
#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/nn/nn.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <vector>

namespace {

using namespace tessera;
using nn::RouterOptions;
using Numbers = std::vector<double>;
using Scoring = RouterOptions::Scoring;

Numbers row(const at::Tensor& t, std::int64_t n) {
  const at::Tensor wide = t[n].detach().to(at::kDouble).contiguous();
  return {wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + wide.numel()};
}

Numbers softmax(Numbers x) {
  const double largest = *std::max_element(x.begin(), x.end());
  double sum = 0;
  for (double& v : x) sum += v = std::exp(v - largest);
  for (double& v : x) v /= sum;
  return x;
}

/// The k largest, best first.
std::vector<std::size_t> best(const Numbers& x, std::int64_t k) {
  std::vector<std::size_t> order(x.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return x[a] > x[b]; });
  order.resize(static_cast<std::size_t>(k));
  return order;
}

struct Chosen {
  std::vector<std::size_t> ids;
  Numbers weights;
};

Chosen reference(const Numbers& logits, const RouterOptions& o, const Numbers& bias) {
  Numbers scores = softmax(logits);
  if (o.scoring == Scoring::sigmoid)
    for (std::size_t e = 0; e < scores.size(); ++e) scores[e] = 1 / (1 + std::exp(-logits[e]));
  if (o.softmax_after_top_k) scores = logits;
  Numbers choice = scores;
  for (std::size_t e = 0; e < bias.size(); ++e) choice[e] += bias[e];
  const std::size_t each = choice.size() / static_cast<std::size_t>(o.groups);
  if (o.groups > 1) {
    Numbers by_group;
    for (std::size_t g = 0; g < choice.size(); g += each) {
      const Numbers members(choice.begin() + static_cast<std::ptrdiff_t>(g),
                            choice.begin() + static_cast<std::ptrdiff_t>(g + each));
      double sum = 0;
      for (const std::size_t e : best(members, o.group_best)) sum += members[e];
      by_group.push_back(sum);
    }
    const auto groups = best(by_group, o.top_groups);
    for (std::size_t e = 0; e < choice.size(); ++e)
      if (std::find(groups.begin(), groups.end(), e / each) == groups.end()) choice[e] = -INFINITY;
  }
  Chosen chosen{best(choice, o.top_k), {}};
  for (const std::size_t e : chosen.ids) chosen.weights.push_back(scores[e]);
  if (o.softmax_after_top_k) chosen.weights = softmax(chosen.weights);
  const double sum = std::accumulate(chosen.weights.begin(), chosen.weights.end(), 0.0);
  for (double& w : chosen.weights) w *= o.scale / (o.normalize ? sum : 1);
  return chosen;
}

struct RouterCase {
  std::string name;
  RouterOptions options;
  bool bias = false;
};

std::vector<RouterCase> routers() {
  return {{"Qwen", {.experts = 8, .top_k = 3}},
          {"Mixtral", {.experts = 6, .top_k = 2, .normalize = true}},
          {"softmax of the chosen", {.experts = 8, .top_k = 2, .softmax_after_top_k = true}},
          {"all experts", {.experts = 4, .top_k = 4}},
          {"one of one", {.experts = 1, .top_k = 1}},
          {"DeepSeek-V2", {.experts = 12, .top_k = 3, .groups = 4, .top_groups = 2, .group_best = 1, .scale = 16}},
          {"DeepSeek-V3",
           {.experts = 16,
            .top_k = 4,
            .scoring = Scoring::sigmoid,
            .normalize = true,
            .groups = 4,
            .top_groups = 2,
            .group_best = 2,
            .scale = 2.5},
           true},
          {"sigmoid with bias", {.experts = 8, .top_k = 2, .scoring = Scoring::sigmoid}, true}};
}

TEST(MoeRouter, TokenByToken) {
  at::manual_seed(1);
  for (const RouterCase& c : routers())
    for (const at::ScalarType type : {at::kFloat, at::kDouble}) {
      const at::Tensor logits = at::randn({25, c.options.experts}, type) * 2;
      const at::Tensor bias = c.bias ? at::randn({c.options.experts}) * 0.3 : at::Tensor();
      const nn::Routing r = nn::route(logits, c.options, bias);
      EXPECT_EQ(r.weights.scalar_type(), type);
      for (std::int64_t n = 0; n < logits.size(0); ++n) {
        const Chosen wanted = reference(row(logits, n), c.options, c.bias ? row(bias.unsqueeze(0), 0) : Numbers());
        for (std::size_t j = 0; j < wanted.ids.size(); ++j) {
          const auto at_j = static_cast<std::int64_t>(j);
          EXPECT_EQ(r.ids[n][at_j].item<std::int64_t>(), static_cast<std::int64_t>(wanted.ids[j])) << c.name;
          EXPECT_NEAR(r.weights[n][at_j].item<double>(), wanted.weights[j], type == at::kDouble ? 1e-12 : 1e-5)
              << c.name;
        }
      }
      EXPECT_TRUE(at::allclose(r.probabilities.sum(1), at::ones({25}, type), 1e-5)) << c.name;
    }
}

TEST(MoeRouter, GradientsByDifferences) {
  at::manual_seed(2);
  for (const RouterCase& c : routers()) {
    const at::Tensor x = at::randn({6, c.options.experts}, at::kDouble) * 2;
    const at::Tensor bias = c.bias ? at::randn({c.options.experts}) * 0.3 : at::Tensor();
    const at::Tensor a = at::randn({6, c.options.top_k}, at::kDouble), b = at::randn_like(x);
    const auto value = [&](const at::Tensor& logits) {
      const nn::Routing r = nn::route(logits, c.options, bias);
      return (r.weights * a).sum() + (r.probabilities * b).sum();
    };
    at::Tensor leaf = x.clone().requires_grad_();
    value(leaf).backward();
    for (std::int64_t i = 0; i < x.numel(); ++i) {
      at::Tensor up = x.clone(), down = x.clone();
      up.view(-1)[i] += 1e-6;
      down.view(-1)[i] -= 1e-6;
      const double wanted = (value(up) - value(down)).item<double>() / 2e-6;
      EXPECT_NEAR(leaf.grad().view(-1)[i].item<double>(), wanted, 1e-6 * std::max(1.0, c.options.scale)) << c.name;
    }
  }
}

TEST(MoeRouter, NoTokens) {
  for (const RouterCase& c : routers()) {
    const nn::Routing r = nn::route(at::empty({0, c.options.experts}), c.options);
    EXPECT_EQ(r.ids.sizes(), (std::vector<std::int64_t>{0, c.options.top_k})) << c.name;
  }
}

TEST(MoeRouter, InFullPrecisionUnderAutocast) {
  at::manual_seed(3);
  const at::Tensor x = at::randn({4, 5, 32}), weight = at::randn({6, 32});
  const at::Tensor wanted = nn::router_logits(x, weight);
  EXPECT_EQ(wanted.sizes(), (std::vector<std::int64_t>{20, 6}));
  EXPECT_TRUE(at::allclose(wanted, at::matmul(x.view({20, 32}), weight.t()), 1e-5, 1e-5));
  const nn::Autocast autocast(true, at::kCPU);
  EXPECT_TRUE(at::equal(nn::router_logits(x, weight), wanted));
  EXPECT_TRUE(nn::autocast_enabled(at::kCPU));
  EXPECT_EQ(nn::router_logits(x.to(at::kBFloat16), weight).scalar_type(), at::kFloat);
  EXPECT_EQ(nn::router_logits(x.to(at::kDouble), weight.to(at::kDouble)).scalar_type(), at::kDouble);
}

TEST(MoeRouter, OptionsThatContradictThemselves) {
  const at::Tensor logits = at::randn({3, 8});
  for (const RouterOptions& o :
       std::vector<RouterOptions>{{.experts = 7, .top_k = 2},
                                  {.experts = 8, .top_k = 9},
                                  {.experts = 8, .top_k = 0},
                                  {.experts = 8, .top_k = 2, .groups = 3},
                                  {.experts = 8, .top_k = 2, .groups = 4, .top_groups = 5},
                                  {.experts = 8, .top_k = 2, .groups = 8, .top_groups = 2, .group_best = 2},
                                  {.experts = 8, .top_k = 5, .groups = 4, .top_groups = 2},
                                  {.experts = 8, .top_k = 2, .scoring = Scoring::sigmoid, .softmax_after_top_k = true}})
    EXPECT_THROW(nn::route(logits, o), Error);
  EXPECT_THROW(nn::route(logits, {.experts = 8, .top_k = 2}, at::zeros({7})), Error);
}

TEST(MoeRouter, JitterStaysInItsBounds) {
  const at::Tensor x = at::ones({2, 50, 16});
  const nn::RandomPlace place{.key = 5};
  const at::Tensor y = nn::jittered(x, 0.1, place);
  EXPECT_GE(y.min().item<double>(), 0.9 - 1e-6);
  EXPECT_LE(y.max().item<double>(), 1.1 + 1e-6);
  EXPECT_GT(y.std().item<double>(), 0.05);
  EXPECT_TRUE(at::equal(nn::jittered(x, 0.1, place), y)) << "keyed by position";
  nn::RandomPlace later = place;
  later.token = 20;
  EXPECT_TRUE(at::equal(nn::jittered(x.slice(1, 20), 0.1, later), y.slice(1, 20)))
      << "whichever rank computes the tokens";
  EXPECT_THROW(nn::jittered(x, 1, place), Error);
}

/// Probabilities and choices of tokens.
struct Batch {
  at::Tensor logits, probabilities, ids;
};
Batch drawn(std::int64_t tokens, std::int64_t experts, std::int64_t k) {
  Batch b;
  b.logits = at::randn({tokens, experts}, at::kDouble);
  b.probabilities = b.logits.softmax(-1);
  b.ids = std::get<1>(b.probabilities.topk(k, -1));
  return b;
}

double counted(const Batch& b, std::int64_t e, std::int64_t n) {
  double count = 0;
  for (std::int64_t j = 0; j < b.ids.size(1); ++j) count += b.ids[n][j].item<std::int64_t>() == e;
  return count;
}

TEST(MoeBalance, TheLossOfTransformers) {
  at::manual_seed(4);
  const std::vector<Batch> layers{drawn(12, 5, 2), drawn(12, 5, 2), drawn(12, 5, 2)};
  for (const bool masked : {false, true}) {
    at::Tensor mask = at::ones({12}, at::kBool);
    if (masked) mask.slice(0, 7).fill_(false);
    double loss = 0;
    for (std::int64_t e = 0; e < 5; ++e) {
      double count = 0, probability = 0, tokens = 0;
      for (const Batch& b : layers)
        for (std::int64_t n = 0; n < 12; ++n) {
          if (!mask[n].item<bool>()) continue;
          count += counted(b, e, n);
          probability += b.probabilities[n][e].item<double>();
          tokens += 1;
        }
      loss += 5 * (count / tokens) * (probability / tokens);
    }
    const at::Tensor got =
        nn::load_balancing_loss({layers[0].probabilities, layers[1].probabilities, layers[2].probabilities},
                                {layers[0].ids, layers[1].ids, layers[2].ids}, masked ? mask : at::Tensor());
    EXPECT_NEAR(got.item<double>(), loss, 1e-12);
  }
}

double switch_reference(const Batch& b, std::int64_t begin, std::int64_t end) {
  const std::int64_t experts = b.logits.size(1);
  double loss = 0;
  for (std::int64_t e = 0; e < experts; ++e) {
    double count = 0, probability = 0;
    for (std::int64_t n = begin; n < end; ++n) {
      count += counted(b, e, n);
      probability += b.probabilities[n][e].item<double>();
    }
    const auto tokens = static_cast<double>(end - begin);
    loss += static_cast<double>(experts) * count / (tokens * static_cast<double>(b.ids.size(1))) * probability / tokens;
  }
  return loss;
}

TEST(MoeBalance, SwitchLoss) {
  at::manual_seed(5);
  const Batch b = drawn(12, 6, 2);
  const double wanted = switch_reference(b, 0, 12);
  EXPECT_NEAR(nn::switch_loss(b.probabilities, b.ids).item<double>(), wanted, 1e-12);
  EXPECT_NEAR(nn::sequence_loss(b.probabilities.view({3, 4, 6}), b.ids.view({3, 4, 2})).item<double>(),
              (switch_reference(b, 0, 4) + switch_reference(b, 4, 8) + switch_reference(b, 8, 12)) / 3, 1e-12);
  // Even choices and even probabilities give the minimum, 1.
  const at::Tensor even = at::full({6, 3}, 1.0 / 3, at::kDouble);
  EXPECT_NEAR(nn::switch_loss(even, at::arange(6).view({6, 1}) % 3).item<double>(), 1, 1e-12);
  EXPECT_EQ(nn::switch_loss(at::empty({0, 3}), at::empty({0, 2}, at::kLong)).item<double>(), 0);
}

TEST(MoeBalance, TwoProcessesHaveTheLossOfAllTokens) {
  at::manual_seed(6);
  const Batch b = drawn(12, 6, 2);
  at::Tensor whole = b.logits.clone().requires_grad_(), parts = b.logits.clone().requires_grad_();
  nn::switch_loss(whole.softmax(-1), b.ids).backward();
  at::Tensor all_counts = at::cat({nn::expert_counts(b.ids, 6), at::full({1}, 24, at::kLong)}).to(at::kDouble);
  double mean = 0;
  for (const std::int64_t begin : {0, 6}) {
    const at::Tensor ids = b.ids.slice(0, begin, begin + 6);
    const at::Tensor loss =
        nn::switch_loss(parts.softmax(-1).slice(0, begin, begin + 6), ids, [&](const at::Tensor& own) {
          EXPECT_EQ(own[6].item<double>(), 12);
          EXPECT_EQ(own.slice(0, 0, 6).sum().item<double>(), 12);
          return all_counts;
        });
    (loss / 2).backward();
    mean += loss.item<double>() / 2;
  }
  EXPECT_NEAR(mean, switch_reference(b, 0, 12), 1e-12);
  EXPECT_TRUE(at::allclose(parts.grad(), whole.grad(), 1e-11, 1e-14));
}

TEST(MoeBalance, ZLoss) {
  at::manual_seed(7);
  const at::Tensor logits = at::randn({9, 4}, at::kDouble);
  double wanted = 0;
  for (std::int64_t n = 0; n < 9; ++n) {
    double sum = 0;
    for (const double x : row(logits, n)) sum += std::exp(x);
    wanted += std::pow(std::log(sum), 2) / 9;
  }
  EXPECT_NEAR(nn::z_loss(logits).item<double>(), wanted, 1e-12);
  EXPECT_EQ(nn::z_loss(at::empty({0, 4})).item<double>(), 0);
}

TEST(MoeBalance, BiasWithoutALoss) {
  at::Tensor bias = at::tensor({0.5, 0.0, -0.25, 0.0});
  nn::update_bias(bias, at::tensor({10, 2, 4, 0}, at::kLong), 0.01);
  EXPECT_TRUE(at::allclose(bias, at::tensor({0.49, 0.01, -0.25, 0.01})));  // the mean is 4
  nn::update_bias(bias, at::tensor({10, 2, 4, 0}, at::kLong), 0.01,
                  [](const at::Tensor& counts) { return counts + at::tensor({0, 8, 0, 0}, at::kDouble); });
  EXPECT_TRUE(at::allclose(bias, at::tensor({0.48, 0.0, -0.24, 0.02})));  // the mean is 6
}

// Sinkhorn's method by its definition, one number at a time.
TEST(MoeBalance, Sinkhorn) {
  at::manual_seed(11);
  for (const auto& [tokens, experts] : {std::pair(std::int64_t{40}, std::int64_t{4}), {7, 3}, {1, 5}, {64, 1}}) {
    const at::Tensor logits = at::randn({tokens, experts}) * 3;
    std::vector<Numbers> table;
    for (std::int64_t n = 0; n < tokens; ++n) {
      table.push_back(row(logits, n));
      for (double& x : table.back()) x = std::exp(x);
    }
    Numbers of_tokens(table.size(), 1), of_experts(static_cast<std::size_t>(experts), 1);
    for (double change = 1; change > 1e-4;) {
      for (std::size_t n = 0; n < table.size(); ++n) {
        double sum = 1e-8;
        for (std::size_t e = 0; e < of_experts.size(); ++e) sum += of_experts[e] * table[n][e];
        of_tokens[n] = 1 / (static_cast<double>(tokens) * sum);
      }
      change = 0;
      for (std::size_t e = 0; e < of_experts.size(); ++e) {
        double sum = 1e-8;
        for (std::size_t n = 0; n < table.size(); ++n) sum += of_tokens[n] * table[n][e];
        const double next = 1 / (static_cast<double>(experts) * sum);
        change += std::abs(next - of_experts[e]) / static_cast<double>(experts);
        of_experts[e] = next;
      }
    }
    const at::Tensor got = nn::sinkhorn(logits);
    for (std::int64_t n = 0; n < tokens; ++n)
      for (std::int64_t e = 0; e < experts; ++e) {
        const auto i = static_cast<std::size_t>(n), j = static_cast<std::size_t>(e);
        const double wanted = table[i][j] * of_tokens[i] * of_experts[j];
        EXPECT_NEAR(got[n][e].item<double>() / wanted, 1, 1e-10) << n << " " << e;
      }
    // Each expert's share of all tokens is 1 / experts.
    EXPECT_LE((got.sum(0) * experts - 1).abs().max().item<double>(), 1e-6);
  }
  EXPECT_EQ(nn::sinkhorn(at::empty({0, 4})).sizes(), (std::vector<std::int64_t>{0, 4}));
  EXPECT_THROW((void)nn::sinkhorn(at::empty({4})), Error);
}

TEST(MoeBalance, ChosenByOthersNumbersTheScoresAreTheWeights) {
  const at::Tensor logits = at::tensor({3.0, 1.0, 2.0, 5.0, 4.0, 0.0}).view({2, 3});
  const at::Tensor by = at::tensor({0.0, 1.0, 0.5, 0.0, 0.0, 2.0}).view({2, 3});
  const nn::Routing r =
      nn::route(logits, {.experts = 3, .top_k = 1, .scoring = Scoring::sigmoid, .sinkhorn = true}, {}, by);
  EXPECT_TRUE(at::equal(r.ids, at::tensor({1, 2}, at::kLong).view({2, 1})));
  EXPECT_TRUE(at::allclose(r.weights, at::tensor({1.0, 0.0}).view({2, 1}).sigmoid()));
}

TEST(MoeBalance, CountsOfExperts) {
  const at::Tensor ids = at::tensor({0, 2, -1, 2, 2, 1}, at::kLong).view({3, 2});
  EXPECT_TRUE(at::equal(nn::expert_counts(ids, 4), at::tensor({1, 1, 3, 0}, at::kLong)));
  const at::Tensor mask = at::tensor({1, 0, 1}, at::kLong).to(at::kBool);
  EXPECT_TRUE(at::equal(nn::expert_counts(ids, 4, mask), at::tensor({1, 1, 2, 0}, at::kLong)));
}

TEST(MoeBalance, ALossOnTheWay) {
  at::Tensor x = at::randn({3}).requires_grad_(), p = at::randn({2}).requires_grad_();
  const at::Tensor y = nn::with_loss(x * 2, p.square().sum(), 0.25);
  EXPECT_TRUE(at::equal(y, x * 2));
  y.sum().backward();
  EXPECT_TRUE(at::equal(x.grad(), at::full({3}, 2.0)));
  EXPECT_TRUE(at::allclose(p.grad(), p * 0.5));
}

TEST(MoeCapacity, Slots) {
  EXPECT_EQ(nn::expert_capacity(100, 2, 8, 1.0), 25);
  EXPECT_EQ(nn::expert_capacity(100, 2, 8, 1.25), 32);  // 31.25
  EXPECT_EQ(nn::expert_capacity(3, 1, 8, 1.0), 1);
  EXPECT_EQ(nn::expert_capacity(0, 2, 8, 1.0), 0);
  EXPECT_THROW(nn::expert_capacity(3, 1, 8, 0), Error);
}

TEST(MoeCapacity, WhoIsDropped) {
  nn::Routing r;
  r.ids = at::tensor({0, 1, 0, 1, 0, 2, 0, 1, 1, 0}, at::kLong).view({5, 2});  // 0: tokens 0-4; 1: 0, 1, 3, 4; 2: 2
  r.weights = at::tensor({0.9, 0.1, 0.3, 0.7, 0.8, 0.2, 0.35, 0.65, 0.5, 0.5}).view({5, 2}).requires_grad_();
  const nn::Limited early = nn::within_capacity(r, 3, 2, nn::DropBy::position);
  EXPECT_TRUE(at::equal(early.routing.ids.view(-1), at::tensor({0, 1, 0, 1, -1, 2, -1, -1, -1, -1}, at::kLong)));
  EXPECT_EQ(early.dropped, 5);
  const nn::Limited strong = nn::within_capacity(r, 3, 2, nn::DropBy::probability);
  EXPECT_TRUE(at::equal(strong.routing.ids.view(-1), at::tensor({0, -1, -1, 1, 0, 2, -1, 1, -1, -1}, at::kLong)));
  EXPECT_EQ(strong.dropped, 5);
  for (const nn::Limited& limited : {early, strong}) {
    EXPECT_TRUE(at::equal(limited.routing.weights.ne(0), limited.routing.ids.ge(0)));
    EXPECT_LE(nn::expert_counts(limited.routing.ids, 3).max().item<std::int64_t>(), 2);
  }
  strong.routing.weights.sum().backward();
  EXPECT_TRUE(at::equal(r.weights.grad(), strong.routing.ids.ge(0).to(at::kFloat)));
}

TEST(MoeCapacity, EnoughForAllDropsNobody) {
  at::manual_seed(8);
  for (const RouterCase& c : routers()) {
    const nn::Routing r = nn::route(at::randn({17, c.options.experts}), c.options);
    for (const nn::DropBy by : {nn::DropBy::position, nn::DropBy::probability}) {
      const nn::Limited all = nn::within_capacity(r, c.options.experts, 17, by);
      EXPECT_EQ(all.dropped, 0);
      EXPECT_TRUE(at::equal(all.routing.ids, r.ids));
      const nn::Limited none = nn::within_capacity(r, c.options.experts, 0, by);
      EXPECT_EQ(none.dropped, r.ids.numel());
    }
  }
}

}  // namespace
