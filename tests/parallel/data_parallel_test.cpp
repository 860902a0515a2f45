/// nn.DataParallel: a step on replicas equals the step on the whole batch; scatter, replicate and gather are tested one
/// by one.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/optim/sgd.h>

#include <tessera/base/error.h>
#include <tessera/parallel/replicas/data_parallel.h>
#include <tessera/parallel/replicas/rows_of_batch.h>

#include <tests/error_of.h>

#include <atomic>
#include <map>
#include <numeric>
#include <string>
#include <tuple>

namespace {

using namespace tessera;
namespace nn = torch::nn;
using tessera::testing::error_of;

/// Two inputs of different types, a tied weight, a layer used twice, and a parameter of the module itself.
struct NetImpl : nn::Module {
  NetImpl() : table(register_module("table", nn::Embedding(11, 6))), body(register_module("body", nn::Linear(6, 6))) {
    scale = register_parameter("scale", at::randn({6}));
  }
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& bias) {
    const at::Tensor h = at::gelu(body(at::gelu(body(table(ids) * scale + bias))));
    return at::matmul(h, table->weight.t());
  }
  nn::Embedding table;
  nn::Linear body;
  at::Tensor scale;
};
TORCH_MODULE(Net);

Net make_net(at::ScalarType type = at::kDouble) {
  at::manual_seed(1);
  Net net;
  net->to(type);
  return net;
}

std::vector<at::Tensor> take_gradients(nn::Module& module) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor& p : module.parameters()) gradients.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
  module.zero_grad();
  return gradients;
}

double distance(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  double worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) worst = std::max(worst, (a[i] - b[i]).abs().max().item<double>());
  return worst;
}

struct Identity : nn::Module {
  at::Tensor forward(const at::Tensor& x) { return x; }
};

TEST(DataParallel, rows_are_cut_as_pytorch_cuts_them) {
  EXPECT_EQ(parallel::chunk_rows(5, 4), (std::vector<std::int64_t>{2, 2, 1}));
  EXPECT_EQ(parallel::chunk_rows(2, 4), (std::vector<std::int64_t>{1, 1}));
  EXPECT_EQ(parallel::chunk_rows(0, 3), (std::vector<std::int64_t>{0}));
}

RC_GTEST_PROP(DataParallelProperty, what_is_scattered_is_gathered_again, ()) {
  const int replicas = *rc::gen::inRange(1, 6);
  std::vector<std::int64_t> sizes{*rc::gen::inRange<std::int64_t>(0, 18)};
  for (int i = *rc::gen::inRange(0, 3); i > 0; --i) sizes.push_back(*rc::gen::inRange<std::int64_t>(0, 4));
  at::Tensor x = at::rand(sizes);
  if (*rc::gen::arbitrary<bool>() && x.dim() > 1) x = x.transpose(0, 1).contiguous().transpose(0, 1);
  const bool trained = *rc::gen::arbitrary<bool>();
  if (trained) x.requires_grad_();

  DataParallel dp(std::make_shared<Identity>(), {.replicas = replicas, .threads_per_replica = 1});
  const at::Tensor y = dp(x);
  RC_ASSERT(at::equal(x, y));
  RC_ASSERT(y.requires_grad() == trained);
  if (!trained) return;
  const at::Tensor gradient = at::rand_like(y);
  y.backward(gradient);
  RC_ASSERT(at::equal(x.grad(), gradient));

  const auto counts = parallel::chunk_rows(sizes[0], replicas);
  RC_ASSERT(static_cast<int>(counts.size()) <= replicas);
  RC_ASSERT(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == sizes[0]);
}

TEST(DataParallel, a_step_equals_the_step_on_the_whole_batch) {
  for (const int replicas : {2, 3, 4}) {
    Net net = make_net();
    const at::Tensor ids = at::randint(11, {7, 5});
    const at::Tensor bias = at::randn({7, 5, 6}, at::kDouble).requires_grad_();
    const auto loss = [&](const at::Tensor& logits) {
      return at::cross_entropy_loss(logits.view({-1, 11}), ids.view(-1));
    };

    loss(net->forward(ids, bias)).backward();
    const at::Tensor bias_gradient = bias.grad().clone();
    bias.mutable_grad().reset();
    const auto expected = take_gradients(*net);

    DataParallel dp(net, {.replicas = replicas, .threads_per_replica = 1});
    const at::Tensor logits = dp(ids, bias);
    EXPECT_LT((logits - net->forward(ids, bias)).abs().max().item<double>(), 1e-13);
    loss(logits).backward();
    EXPECT_LT((bias.grad() - bias_gradient).abs().max().item<double>(), 1e-13);
    EXPECT_LT(distance(take_gradients(*net), expected), 1e-12) << replicas;

    // Gradients accumulate, as in any backward.
    for (int i = 0; i < 2; ++i) loss(dp(ids, bias)).backward();
    auto twice = take_gradients(*net);
    for (at::Tensor& g : twice) g = g / 2;
    EXPECT_LT(distance(twice, expected), 1e-12);
  }
}

TEST(DataParallel, gradients_are_the_sum_of_the_parts_in_their_order_bit_for_bit) {
  Net net = make_net(at::kFloat);
  const at::Tensor ids = at::randint(11, {11, 5}), bias = at::randn({11, 5, 6});
  const auto loss = [](nn::Module& m, const at::Tensor& i, const at::Tensor& b) {
    return at::cross_entropy_loss(dynamic_cast<NetImpl&>(m).forward(i, b).view({-1, 11}), i.view(-1), {},
                                  at::Reduction::Sum);
  };
  std::vector<at::Tensor> sum;
  std::int64_t first = 0;
  for (const std::int64_t rows : parallel::chunk_rows(11, 4)) {
    loss(*net, ids.narrow(0, first, rows), bias.narrow(0, first, rows)).backward();
    first += rows;
    auto part = take_gradients(*net);
    if (sum.empty())
      sum = part;
    else
      for (std::size_t i = 0; i < sum.size(); ++i) sum[i] = sum[i] + part[i];
  }
  DataParallel dp(net, {.replicas = 4, .threads_per_replica = 1});
  for (int again = 0; again < 3; ++again) {
    const at::Tensor losses = dp.call(loss, ids, bias);
    EXPECT_EQ(losses.sizes(), at::IntArrayRef({4}));
    losses.sum().backward();
    const auto found = take_gradients(*net);
    for (std::size_t i = 0; i < sum.size(); ++i) EXPECT_TRUE(at::equal(found[i], sum[i])) << i;
  }
}

TEST(DataParallel, losses_of_replicas_are_weighed_by_rows) {
  DataParallel dp(std::make_shared<Identity>(), {.replicas = 3, .threads_per_replica = 1});
  const at::Tensor x = at::randn({7, 2}, at::kDouble).requires_grad_();
  const auto mean = [](Identity&, const at::Tensor& part) { return part.mean(); };
  const at::Tensor means = dp.call(mean, x);
  ASSERT_EQ(means.sizes(), at::IntArrayRef({3}));
  const at::Tensor loss = mean_over_rows(means, 7, 3);
  EXPECT_NEAR(loss.item<double>(), x.mean().item<double>(), 1e-15);
  loss.backward();
  EXPECT_LT((x.grad() - 1.0 / 14).abs().max().item<double>(), 1e-15);
  EXPECT_NE(error_of<std::exception>([&] { mean_over_rows(means, 8, 4); }).find("4 values"), std::string::npos);
}

struct Pair {
  at::Tensor sum, ids;
  std::string note;
};
template <class F>
void visit_tensors(Pair& pair, F&& each) {
  each(pair.sum);
  each(pair.ids);
}

TEST(DataParallel, arguments_and_results_of_many_kinds) {
  struct Many : nn::Module {};
  DataParallel dp(std::make_shared<Many>(), {.replicas = 2, .threads_per_replica = 1});
  const at::Tensor x = at::arange(10).view({5, 2}), mask = at::ones({2});
  using Result = std::tuple<at::Tensor, std::vector<at::Tensor>, std::optional<at::Tensor>, std::optional<at::Tensor>,
                            std::map<std::string, at::Tensor>, Pair>;
  const std::pair<at::Tensor, std::optional<at::Tensor>> nested{x, std::nullopt};
  Result result = dp.call(
      [&](Many&, const at::Tensor& a, const at::Tensor& whole_mask, int times, const auto& pair,
          const std::string& text, const char* literal, const Pair& own) -> Result {
        EXPECT_EQ(whole_mask.size(0), 2);
        EXPECT_FALSE(pair.second.has_value());
        EXPECT_EQ(pair.first.size(0), a.size(0));
        EXPECT_EQ(text + literal, "ab");
        EXPECT_EQ(own.note, "n");
        EXPECT_EQ(own.ids.size(0), a.size(0));
        return {a * times,    {a, a + whole_mask},        a.sum(),
                std::nullopt, {{"k", a.narrow(1, 0, 1)}}, {a.sum(), a, "from 0"}};
      },
      x, whole(mask), 3, nested, std::string("a"), "b", Pair{x, x, "n"});
  EXPECT_TRUE(at::equal(std::get<0>(result), x * 3));
  EXPECT_TRUE(at::equal(std::get<1>(result)[1], x + 1));
  EXPECT_TRUE(at::equal(*std::get<2>(result), at::tensor({15, 30}, at::kLong)));
  EXPECT_FALSE(std::get<3>(result).has_value());
  EXPECT_TRUE(at::equal(std::get<4>(result)["k"], x.narrow(1, 0, 1)));
  EXPECT_TRUE(at::equal(std::get<5>(result).ids, x));
  EXPECT_EQ(std::get<5>(result).note, "from 0");

  std::atomic<int> runs = 0;
  dp.call([&](Many&) { ++runs; });  // nothing to scatter: runs once
  EXPECT_EQ(runs, 1);
  const std::string bad = error_of<std::exception>(
      [&] { dp.call([](Many&, const at::Tensor& a, const at::Tensor&) { return a; }, x, mask); });
  EXPECT_NE(bad.find("argument 1 has 5 rows and argument 2 has 2"), std::string::npos) << bad;
  EXPECT_NE(bad.find("whole("), std::string::npos) << bad;
}

TEST(DataParallel, a_whole_argument_gets_the_sum_of_gradients) {
  DataParallel dp(std::make_shared<Identity>(), {.replicas = 2, .threads_per_replica = 1});
  const at::Tensor x = at::randn({4, 3}), w = at::randn({3}).requires_grad_();
  dp.call([](Identity&, const at::Tensor& a, const at::Tensor& b) { return a * b; }, x, whole(w)).sum().backward();
  EXPECT_LT((w.grad() - x.sum(0)).abs().max().item<double>(), 1e-6);
}

TEST(DataParallel, a_batch_of_rows_is_cut_with_its_documents) {
  data::Batch batch{.ids = at::arange(12).view({3, 4}), .labels = at::arange(12).view({3, 4}).clone()};
  batch.labels[1][0] = -100;
  batch.document_starts = {0, 2, 4, 8, 11};
  batch.lengths = {4, 3, 4};
  batch.types = batch.ids % 2;
  const auto part = parallel::RowsOf<data::Batch>::slice(batch, 1, 2);
  EXPECT_TRUE(at::equal(part.ids, batch.ids.narrow(0, 1, 2)));
  EXPECT_TRUE(at::equal(part.types, batch.types.narrow(0, 1, 2)));
  EXPECT_EQ(part.lengths, (std::vector<std::int64_t>{3, 4}));
  EXPECT_EQ(part.tokens, 7);
  EXPECT_EQ(part.labels_not_ignored, 7);
  EXPECT_EQ(part.scored_tokens, 7 - 2);  // the first label of the first row is ignored anyway
  EXPECT_EQ(part.document_starts, (std::vector<std::int64_t>{0, 4, 7}));
  batch.images = at::zeros({1, 3, 2, 2});
  EXPECT_THROW(parallel::RowsOf<data::Batch>::slice(batch, 1, 2), InputError);
}

TEST(DataParallel, several_failures_are_all_named_and_leave_nothing_behind) {
  struct Picky : nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      if (x[0].item<double>() < 0) throw InputError("a negative row");
      return x;
    }
  };
  DataParallel dp(std::make_shared<Picky>(), {.replicas = 3, .threads_per_replica = 1});
  at::Tensor x = at::tensor({1.0, 1.0, -1.0, 1.0, -1.0});
  try {
    dp(x);
    FAIL();
  } catch (const InputError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("2 of 3 replicas failed"), std::string::npos) << text;
    EXPECT_NE(text.find("replica 1 of 3 (rows 2 to 3): a negative row"), std::string::npos) << text;
    EXPECT_NE(text.find("replica 2 of 3 (rows 4 to 4): a negative row"), std::string::npos) << text;
    EXPECT_NE(dynamic_cast<const std::nested_exception*>(&error), nullptr);
  }
  x = x.abs();
  EXPECT_TRUE(at::equal(dp(x), x));
  const std::string bad = error_of<std::exception>(
      [&] { dp.call([](Picky&, const at::Tensor& a) { return at::zeros({2, a.size(0)}); }, x); });
  EXPECT_NE(bad.find("[2, 2], [2, 2], [2, 1]"), std::string::npos) << bad;
  EXPECT_NE(error_of<std::exception>([&] { DataParallel(std::make_shared<Picky>(), {.replicas = -1}); }).find("-1"),
            std::string::npos);
}

TEST(DataParallel, graphs_are_kept_when_asked_and_double_backward_is_refused) {
  Net net = make_net();
  DataParallel dp(net, {.replicas = 2, .threads_per_replica = 1});
  const at::Tensor ids = at::randint(11, {4, 3}), bias = at::randn({4, 3, 6}, at::kDouble);
  const at::Tensor loss = dp(ids, bias).sum();
  loss.backward({}, /*retain_graph=*/true);
  const auto once = take_gradients(*net);
  loss.backward();
  EXPECT_EQ(distance(take_gradients(*net), once), 0);
  EXPECT_NE(error_of<std::exception>([&] { loss.backward(); }).find("retain_graph"), std::string::npos);
  const at::Tensor other = dp(ids, bias).sum();
  EXPECT_NE(error_of<std::exception>([&] {
              torch::autograd::grad({other}, {net->scale}, {}, true, /*create_graph=*/true);
            }).find("create_graph"),
            std::string::npos);
}

TEST(DataParallel, a_gradient_that_would_be_lost_is_an_error) {
  struct Hidden : nn::Module {
    at::Tensor forward(const at::Tensor& x) { return x * secret; }
    at::Tensor secret = at::ones({3}).requires_grad_();
  };
  DataParallel dp(std::make_shared<Hidden>(), {.replicas = 2, .threads_per_replica = 1});
  const std::string text = error_of<std::exception>([&] { dp(at::ones({2, 3}).requires_grad_()); });
  EXPECT_NE(text.find("tensor [3]"), std::string::npos) << text;
  EXPECT_NE(text.find("register_parameter"), std::string::npos) << text;
  const at::NoGradGuard no_grad;
  EXPECT_TRUE(at::equal(dp(at::ones({2, 3})), at::ones({2, 3})));
}

TEST(DataParallel, teams_have_their_own_number_of_threads_and_the_callers_state) {
  const int here = at::get_num_threads();
  struct Watching : nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      threads[x[0].item<int>()] = at::get_num_threads();
      grad[x[0].item<int>()] = at::GradMode::is_enabled();
      return x;
    }
    std::array<int, 2> threads{};
    std::array<bool, 2> grad{};
  };
  auto watching = std::make_shared<Watching>();
  DataParallel dp(watching, {.replicas = 2, .threads_per_replica = 3});
  EXPECT_EQ(at::get_num_threads(), here);
  dp(at::tensor({0, 1}));
  EXPECT_EQ(watching->threads, (std::array<int, 2>{3, 3}));
  EXPECT_EQ(watching->grad, (std::array<bool, 2>{true, true}));
  {
    const at::NoGradGuard no_grad;
    dp(at::tensor({0, 1}));
  }
  EXPECT_EQ(watching->grad, (std::array<bool, 2>{false, false}));
  {
    const c10::InferenceMode inference;
    EXPECT_TRUE(dp(at::tensor({0, 1})).is_inference());
  }
  EXPECT_EQ(at::get_num_threads(), here);
}

}  // namespace
