/// DataParallel around modules that draw random numbers, track statistics, checkpoint their activations, or have other
/// state.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformerlayer.h>

#include <tessera/base/error.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/autograd/autograd_engine.h>
#include <tessera/parallel/replicas/data_parallel.h>

#include "checkpoint_modules.h"
#include "managed_materializer.h"

#include <string>

namespace {

using namespace tessera;
namespace nn = torch::nn;

const DataParallelOptions two{.replicas = 2, .threads_per_replica = 1};

std::vector<at::Tensor> take_gradients(nn::Module& module) {
  std::vector<at::Tensor> gradients;
  for (at::Tensor& p : module.parameters()) gradients.push_back(p.grad().defined() ? p.grad().clone() : at::Tensor());
  module.zero_grad();
  return gradients;
}

void expect_equal(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

TEST(DataParallelModules, dropout_differs_between_replicas_and_repeats_with_the_seed) {
  DataParallel dp(nn::Dropout(0.5), two);
  const at::Tensor x = at::ones({2, 4096});
  at::manual_seed(3);
  const at::Tensor first = dp(x), second = dp(x);
  for (int again = 0; again < 5; ++again) {
    at::manual_seed(3);
    EXPECT_TRUE(at::equal(dp(x), first));
    EXPECT_TRUE(at::equal(dp(x), second));
  }
  EXPECT_FALSE(at::equal(first, second));
  EXPECT_FALSE(at::equal(first[0], first[1]));
  EXPECT_NEAR(first.mean().item<double>(), 1, 0.1);
  EXPECT_NEAR((first[0] * first[1]).mean().item<double>(), 1, 0.15);  // independent: E[xy] = E[x] E[y]

  // A call that draws no random numbers does not advance the generator.
  dp.module()->eval();
  const at::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
  dp(x);
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(at::kCPU).get_state(), before));
}

TEST(DataParallelModules, every_way_of_drawing_goes_to_the_replicas_stream) {
  struct Drawing : nn::Module {
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor like = at::ones({x.size(0), 64});
      return at::cat({at::randn({x.size(0), 64}), at::rand({x.size(0), 64}), at::bernoulli(like * 0.5),
                      at::empty_like(like).exponential_(), at::dropout(like, 0.5, /*train=*/true), at::rand_like(like),
                      at::randperm(64).to(at::kFloat).unsqueeze(0).expand({x.size(0), 64}),
                      at::multinomial(like, 64, /*replacement=*/true).to(at::kFloat)},
                     1);
    }
  };
  DataParallel dp(std::make_shared<Drawing>(), two);
  at::manual_seed(9);
  const at::Tensor first = dp(at::zeros({2}));
  for (int again = 0; again < 5; ++again) {
    at::manual_seed(9);
    EXPECT_TRUE(at::equal(dp(at::zeros({2})), first));
  }
  for (std::int64_t i = 0; i < first.size(1); i += 64)
    EXPECT_FALSE(at::equal(first[0].narrow(0, i, 64), first[1].narrow(0, i, 64))) << i / 64;
}

TEST(DataParallelModules, batch_norm_keeps_the_statistics_of_replica_0) {
  at::manual_seed(4);
  nn::BatchNorm1d norm(3), reference(3);
  const at::Tensor x = 2 * at::randn({9, 3}) + 1;
  const at::Tensor mean = norm->running_mean;
  DataParallel dp(norm, two);
  const at::Tensor y = dp(x);
  const at::Tensor expected = reference->forward(x.narrow(0, 0, 5));
  EXPECT_TRUE(at::allclose(y.narrow(0, 0, 5), expected, 1e-6, 1e-6)) << y << expected;
  EXPECT_TRUE(mean.is_same(norm->running_mean));
  EXPECT_TRUE(at::allclose(norm->running_mean, reference->running_mean, 1e-6)) << norm->running_mean;
  EXPECT_TRUE(at::allclose(norm->running_var, reference->running_var, 1e-6)) << norm->running_var;
  EXPECT_EQ(norm->num_batches_tracked.item<int>(), 1);
  y.pow(2).sum().backward();
  EXPECT_TRUE(norm->weight.grad().defined());

  norm->eval();
  reference->eval();
  EXPECT_TRUE(at::allclose(dp(x), reference->forward(x)));
  EXPECT_EQ(norm->num_batches_tracked.item<int>(), 1);
}

TEST(DataParallelModules, buffers_written_through_views_are_private_too) {
  struct Counting : nn::Module {
    Counting() { count = register_buffer("count", at::zeros({2, 3})); }
    at::Tensor forward(const at::Tensor& x) {
      const at::Tensor before = count.clone();
      at::Tensor row = count.select(0, 1);
      for (int i = 0; i < 100; ++i) row.add_(x.size(0));
      count.narrow(1, 0, 1).mul_(2);
      return (count - before).unsqueeze(0) * at::ones({x.size(0), 1, 1});
    }
    at::Tensor count;
  };
  DataParallel dp(std::make_shared<Counting>(), two);
  const at::Tensor seen = dp(at::zeros({3}));  // 2 rows and 1 row
  EXPECT_TRUE(at::equal(seen[0], at::tensor({0.F, 0.F, 0.F, 400.F, 200.F, 200.F}).view({2, 3}))) << seen;
  EXPECT_TRUE(at::equal(seen[2], at::tensor({0.F, 0.F, 0.F, 200.F, 100.F, 100.F}).view({2, 3}))) << seen;
  EXPECT_TRUE(at::equal(dp.module()->count, seen[0]));
}

TEST(DataParallelModules, library_modules_train_to_the_whole_batchs_gradients) {
  at::manual_seed(5);
  const at::Tensor x = at::randn({6, 4, 8});
  struct Case {
    std::string name;
    std::shared_ptr<nn::Module> module;
    std::function<at::Tensor(nn::Module&, const at::Tensor&)> forward;
  };
  nn::LSTM lstm(nn::LSTMOptions(8, 8).num_layers(2).batch_first(true));
  nn::TransformerEncoderLayer layer(nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0));
  const Case cases[] = {{"lstm", lstm.ptr(),
                         [](nn::Module& m, const at::Tensor& a) { return std::get<0>(m.as<nn::LSTM>()->forward(a)); }},
                        {"transformer", layer.ptr(), [](nn::Module& m, const at::Tensor& a) {
                           return m.as<nn::TransformerEncoderLayer>()->forward(a.transpose(0, 1)).transpose(0, 1);
                         }}};
  for (const Case& c : cases) {
    c.module->to(at::kDouble);
    const at::Tensor input = x.to(at::kDouble);
    c.forward(*c.module, input).pow(2).sum().backward();
    const auto expected = take_gradients(*c.module);
    DataParallel dp(c.module, two);
    dp.call(c.forward, input).pow(2).sum().backward();
    const auto found = take_gradients(*c.module);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-10, 1e-10)) << c.name << ' ' << i;
  }
}

TEST(DataParallelModules, checkpointed_blocks_repeat_their_dropout_in_the_replicas_backward) {
  at::manual_seed(6);
  checkpoint_test::Block block(16, 0.3);
  DataParallel dp(block, two);
  const at::Tensor x = at::randn({6, 16});
  const auto plain = [](checkpoint_test::BlockImpl& m, const at::Tensor& a) { return m.forward(m.forward(a)); };
  const auto checkpointed = [](checkpoint_test::BlockImpl& m, const at::Tensor& a) {
    const auto once = [&m](at::Tensor h) { return m.forward(h); };
    return tessera::checkpointed(once, tessera::checkpointed(once, a));
  };
  at::manual_seed(7);
  dp.call(plain, x).pow(2).sum().backward();
  const auto expected = take_gradients(*block);
  at::manual_seed(7);
  dp.call(checkpointed, x).pow(2).sum().backward();
  expect_equal(take_gradients(*block), expected);
}

TEST(DataParallelModules, one_backward_is_one_backward_for_those_who_listen) {
  struct Counter final : parallel::BackwardListener {
    void backward_begin() override { ++begun; }
    void backward_end() override { ++ended; }
    void backward_failed() noexcept override { ++failed; }
    int begun = 0, ended = 0, failed = 0;
  } counter;
  nn::Linear linear(3, 3);
  int hooks = 0;
  const auto listening = parallel::listen_to_backward(counter);
  const auto hook =
      parallel::after_gradient(linear->weight, [&](const at::Tensor& p) { hooks += p.grad().defined() ? 1 : 0; });
  DataParallel dp(linear, two);
  dp(at::ones({4, 3})).sum().backward();
  EXPECT_EQ(counter.begun, 1);
  EXPECT_EQ(counter.ended, 1);
  EXPECT_EQ(counter.failed, 0);
  EXPECT_EQ(hooks, 1);
}

TEST(DataParallelModules, modules_with_state_of_their_own_are_made_anew_and_share_memory) {
  struct Stateful : nn::Module {
    Stateful()
        : linear(register_module("linear", nn::Linear(5, 5))), norm(register_module("norm", nn::BatchNorm1d(5))) {}
    at::Tensor forward(const at::Tensor& x) {
      last = x;  // not safe for a module shared between replicas
      address = linear->weight.data_ptr();
      return norm(linear(last));
    }
    nn::Linear linear;
    nn::BatchNorm1d norm;
    at::Tensor last;
    void* address = nullptr;
  };
  at::manual_seed(8);
  auto first = std::make_shared<Stateful>(), reference = std::make_shared<Stateful>();
  first->linear->bias.set_requires_grad(false);
  std::vector<std::shared_ptr<Stateful>> made;
  const at::Tensor before = at::globalContext().defaultGenerator(at::kCPU).get_state();
  DataParallel dp(first, {.replicas = 2, .threads_per_replica = 1, .make = [&] {
                            made.push_back(std::make_shared<Stateful>());
                            return made.back();
                          }});
  EXPECT_TRUE(at::equal(at::globalContext().defaultGenerator(at::kCPU).get_state(), before));
  ASSERT_EQ(made.size(), 1u);
  const at::Tensor x = at::randn({8, 5});
  for (int step = 0; step < 2; ++step) {
    const at::Tensor y = dp(x);
    EXPECT_EQ(made[0]->address, first->linear->weight.data_ptr());
    EXPECT_TRUE(at::equal(made[0]->last, x.narrow(0, 4, 4)));
    EXPECT_EQ(first->norm->num_batches_tracked.item<int>(), step + 1);
    y.pow(2).sum().backward();
    const auto found = take_gradients(*first);
    EXPECT_FALSE(found[1].defined());  // frozen
    {
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < found.size(); ++i) reference->parameters()[i].copy_(first->parameters()[i]);
    }
    for (int r = 0; r < 2; ++r) reference->forward(x.narrow(0, 4 * r, 4)).pow(2).sum().backward();
    EXPECT_TRUE(at::allclose(found[0], take_gradients(*reference)[0], 1e-5, 1e-5));
    const at::NoGradGuard no_grad;
    first->linear->weight.sub_(found[0], 0.1);
  }
  first->eval();
  EXPECT_TRUE(at::allclose(dp(x), first->forward(x), 1e-5, 1e-6));
  EXPECT_FALSE(made[0]->is_training());
  const auto other = [] { return std::make_shared<nn::LinearImpl>(5, 4); };
  EXPECT_THROW((DataParallel(nn::Linear(5, 5), {.replicas = 2, .make = other})), InputError);
}

TEST(DataParallelModules, sharded_parameters_are_refused) {
  nn::Linear linear(4, 4);
  managed_test::DroppingMaterializer materializer;
  materializer.manage(linear->parameters());
  try {
    DataParallel dp(linear, two);
    dp(at::ones({4, 4}));
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("sharded"), std::string::npos) << error.what();
  }
}

TEST(DataParallelModules, autocast_reaches_the_replicas) {
  nn::Linear linear(4, 4);
  DataParallel dp(linear, two);
  at::Tensor y;
  {
    const tessera::nn::Autocast autocast(true, at::kCPU);
    y = dp(at::ones({4, 4}));
  }
  EXPECT_EQ(y.scalar_type(), at::kBFloat16);
  y.sum().backward();
  EXPECT_EQ(linear->weight.grad().scalar_type(), at::kFloat);
  EXPECT_TRUE(at::allclose(linear->weight.grad(), at::full({4, 4}, 4.0)));
}

}  // namespace
