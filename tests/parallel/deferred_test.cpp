// Construction without memory: bits, random state, views, raw pointers, memory.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>
#include <torch/nn/modules/transformer.h>

#include <tessera/base/value.h>
#include <tessera/models/gpt2.h>
#include <tessera/models/llama.h>
#include <tessera/parallel/deferred/deferred.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <thread>

namespace {

using namespace tessera::parallel;
using tessera::deferred;
namespace nn = torch::nn;

void seed(std::uint64_t value) {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_current_seed(value);
}

// The default generator's next output: its state, and the normal sample that it caches.
std::vector<at::Tensor> random_state() {
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  return {generator.get_state(), at::randn({3}, at::kDouble)};
}

void expect_same(const std::vector<at::Tensor>& a, const std::vector<at::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

void expect_same_tensors(const nn::Module& a, const nn::Module& b) {
  const auto parameters = a.named_parameters(), others = b.named_parameters();
  ASSERT_EQ(parameters.size(), others.size());
  for (const auto& item : parameters) {
    const at::Tensor& other = others[item.key()];
    EXPECT_EQ(item.value().requires_grad(), other.requires_grad()) << item.key();
    EXPECT_EQ(item.value().strides(), other.strides()) << item.key();
    EXPECT_TRUE(at::equal(item.value(), other)) << item.key();
  }
  const auto buffers = a.named_buffers(), other_buffers = b.named_buffers();
  ASSERT_EQ(buffers.size(), other_buffers.size());
  for (const auto& item : buffers) EXPECT_TRUE(at::equal(item.value(), other_buffers[item.key()])) << item.key();
}

// Eager and deferred construction give the same bits and leave the same random state; parameters keep their TensorImpl.
template <class M, class... Args>
void expect_as_eager(const Args&... args) {
  seed(41);
  const auto eager = std::make_shared<M>(args...);
  const std::vector<at::Tensor> state = random_state();

  seed(41);
  const auto module = deferred<M>(args...);
  const std::vector<at::Tensor> parameters = module->parameters();
  EXPECT_FALSE(parameters.empty());
  std::vector<at::TensorImpl*> impls;
  for (const at::Tensor& p : parameters) {
    EXPECT_TRUE(is_deferred(p)) << p.sizes();
    impls.push_back(p.unsafeGetTensorImpl());
  }
  for (const at::Tensor& b : module->buffers()) EXPECT_FALSE(is_deferred(b)) << b.sizes();
  expect_same(state, random_state());
  const std::vector<at::Tensor> before = random_state();

  std::vector<at::Tensor> reversed(parameters.rbegin(), parameters.rend());
  materialize({reversed.begin(), reversed.begin() + static_cast<std::ptrdiff_t>(reversed.size() / 2)});
  materialize(reversed);
  const std::vector<at::Tensor> now = module->parameters();
  for (std::size_t i = 0; i < now.size(); ++i) {
    EXPECT_FALSE(is_deferred(now[i]));
    EXPECT_EQ(now[i].unsafeGetTensorImpl(), impls[i]);
    EXPECT_FALSE(now[i].key_set().has(c10::DispatchKey::DeferredInit));
  }
  expect_same_tensors(*eager, *module);

  // Materializing drew nothing from the default generator.
  seed(41);
  const auto again = std::make_shared<M>(args...);
  random_state();
  expect_same(before, random_state());
}

struct Mlp : nn::Module {
  nn::Sequential layers{nn::Linear(12, 33), nn::Functional(at::relu), nn::Linear(33, 5), nn::PReLU(),
                        nn::LayerNorm(nn::LayerNormOptions({5}))};
  Mlp() { register_module("layers", layers); }
};
TEST(Deferred, mlp) { expect_as_eager<Mlp>(); }

struct Convolutions : nn::Module {
  nn::Conv2d conv{nn::Conv2dOptions(3, 8, 3)};
  nn::BatchNorm2d norm{8};
  nn::ConvTranspose1d up{nn::ConvTranspose1dOptions(4, 6, 3)};
  nn::GroupNorm group{nn::GroupNormOptions(2, 4)};
  Convolutions() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("up", up);
    register_module("group", group);
  }
};
TEST(Deferred, convolutions_and_norms) { expect_as_eager<Convolutions>(); }

TEST(Deferred, lstm) { expect_as_eager<nn::LSTMImpl>(nn::LSTMOptions(7, 9).num_layers(2).bidirectional(true)); }
TEST(Deferred, gru) { expect_as_eager<nn::GRUImpl>(nn::GRUOptions(4, 5)); }
TEST(Deferred, attention) {
  expect_as_eager<nn::MultiheadAttentionImpl>(nn::MultiheadAttentionOptions(16, 4));
  expect_as_eager<nn::MultiheadAttentionImpl>(nn::MultiheadAttentionOptions(16, 4).kdim(8).vdim(12).add_bias_kv(true));
}
TEST(Deferred, transformer) {
  expect_as_eager<nn::TransformerImpl>(
      nn::TransformerOptions(16, 2).num_encoder_layers(2).num_decoder_layers(2).dim_feedforward(24));
}
TEST(Deferred, embeddings) {
  expect_as_eager<nn::EmbeddingBagImpl>(nn::EmbeddingBagOptions(37, 6));
  expect_as_eager<nn::EmbeddingImpl>(nn::EmbeddingOptions(37, 6).padding_idx(5));  // a view of it is zeroed
}
TEST(Deferred, our_models) {
  const tessera::Value gpt2 = tessera::parse_json(R"({"model_type":"gpt2","n_layer":2,"n_head":2,"n_embd":32,
      "vocab_size":101,"n_positions":16,"n_inner":null,"layer_norm_epsilon":1e-5,"tie_word_embeddings":false})",
                                                  "test");
  expect_as_eager<tessera::models::Gpt2>(gpt2, std::optional<std::uint64_t>(7));
  const tessera::Value llama =
      tessera::parse_json(R"({"model_type":"llama","num_hidden_layers":2,"num_attention_heads":4,
      "num_key_value_heads":2,"hidden_size":32,"intermediate_size":48,"vocab_size":101,"max_position_embeddings":32,
      "rms_norm_eps":1e-6,"rope_theta":10000.0,"tie_word_embeddings":true})",
                          "test");
  expect_as_eager<tessera::models::Llama>(llama, std::optional<std::uint64_t>(7));
}

// Custom initializers of every kind that people write.
struct Homemade : nn::Module {
  at::Tensor random, scaled, squashed, orthogonal, truncated, sliced, uniform, table, whole, view, halves, frozen;
  nn::Linear linear{6, 10};
  Homemade() {
    random = register_parameter("random", at::randn({5, 7}));
    scaled = register_parameter("scaled", at::randn({4, 30}) * 0.02);
    squashed = register_parameter("squashed", 0.1 + (at::rand({4, 30}) - 0.5).div(3).clone().clamp(-0.1, 0.1).neg());
    orthogonal = register_parameter("orthogonal", at::empty({8, 6}));
    nn::init::orthogonal_(orthogonal);
    truncated = register_parameter("truncated", at::empty({9, 9}));
    {
      const at::NoGradGuard no_grad;
      truncated.uniform_(-0.9, 0.9).erfinv_().mul_(0.02 * std::sqrt(2.0)).add_(0.1).clamp_(-0.05, 0.15);
    }
    sliced = register_parameter("sliced", at::ones({6, 20}));
    {
      const at::NoGradGuard no_grad;
      sliced.narrow(1, 3, 5).normal_(1, 0.5);  // not contiguous
      sliced.select(0, 2).fill_(0.25);
      sliced.t().slice(0, 15, 20, 2).uniform_();
      sliced[5][19] = 8;
    }
    uniform = register_parameter("uniform", at::rand({17}, at::kDouble));
    whole = register_parameter("whole", at::empty({4, 4}));
    nn::init::eye_(whole);
    view = register_parameter("view", at::zeros({3, 8}).view({4, 6}).t());
    halves = register_parameter("halves", at::full({40}, 0.3, at::kBFloat16).normal_());
    frozen = register_parameter("frozen", at::randn({3}).unsqueeze_(0), /*requires_grad=*/false);
    {
      const at::NoGradGuard no_grad;
      linear->weight.copy_(at::arange(60).view({10, 6}));
      linear->bias.div_(at::tensor(3.0));
    }
    register_module("linear", linear);
    register_buffer("mask", at::ones({12, 12}).tril());
    register_buffer("positions", at::arange(12));
    register_buffer("scales", at::tensor({1.0, 0.5, 0.25}));
    table = register_buffer("table", at::empty({50, 64}));
    auto cells = table.accessor<float, 2>();  // through the raw pointer
    for (std::int64_t i = 0; i < 50; ++i) {
      for (std::int64_t j = 0; j < 64; ++j) cells[i][j] = static_cast<float>(std::sin(static_cast<double>(i * j)));
    }
    table.mul_(2);
  }
};
TEST(Deferred, homemade_initialisers) {
  seed(5);
  const auto eager = std::make_shared<Homemade>();
  const std::vector<at::Tensor> state = random_state();
  seed(5);
  const auto module = deferred<Homemade>();
  expect_same(state, random_state());
  for (const char* name :
       {"random", "scaled", "squashed", "truncated", "sliced", "uniform", "view", "halves", "frozen"}) {
    EXPECT_TRUE(is_deferred(module->named_parameters()[name])) << name;
  }
  materialize(module->parameters());
  expect_same_tensors(*eager, *module);
}

TEST(Deferred, operators_outside_the_scope_materialise) {
  seed(1);
  const auto eager = std::make_shared<Mlp>();
  seed(1);
  const auto module = deferred<Mlp>();
  const at::Tensor x = at::randn({4, 12});
  at::Tensor expected = eager->layers->forward(x), got = module->layers->forward(x);
  EXPECT_TRUE(at::equal(expected, got));
  expected.sum().backward();
  got.sum().backward();
  for (const auto& p : module->named_parameters()) {
    EXPECT_FALSE(is_deferred(p.value())) << p.key();
    EXPECT_TRUE(at::equal(p.value().grad(), eager->named_parameters()[p.key()].grad())) << p.key();
  }
}

TEST(Deferred, reading_of_every_kind_outside_the_scope) {
  seed(3);
  const at::Tensor truth = at::empty({40, 40}).normal_();
  const auto make = [] {
    seed(3);
    const DeferredScope scope;
    return at::empty({40, 40}).normal_();
  };
  EXPECT_EQ(make().sum().item<float>(), truth.sum().item<float>());
  EXPECT_EQ(make()[1][2].item<float>(), truth[1][2].item<float>());
  EXPECT_TRUE(at::equal(make().clone(), truth));
  EXPECT_TRUE(at::equal(make().to(at::kDouble), truth.to(at::kDouble)));
  EXPECT_TRUE(at::equal(make().t().contiguous(), truth.t()));
  EXPECT_TRUE(at::equal(at::cat({make(), make()}), at::cat({truth, truth})));
  EXPECT_TRUE(at::equal(make().mul_(2), truth * 2));
  EXPECT_TRUE(at::equal(at::empty({40, 40}).copy_(make()), truth));
  EXPECT_EQ(at::zeros_like(make()).sum().item<float>(), 0);
  std::ostringstream a, b;
  a << make();
  b << truth;
  EXPECT_EQ(a.str(), b.str());

  at::Tensor unread = make();
  for (const auto& read :
       std::vector<std::function<void()>>{[&] { unread.data_ptr<float>(); }, [&] { unread.mutable_data_ptr(); },
                                          [&] { unread.accessor<float, 2>(); }, [&] { unread.storage().data(); }}) {
    try {
      read();
      ADD_FAILURE() << "no error";
    } catch (const std::exception& error) {
      EXPECT_NE(std::string(error.what()).find("tessera::parallel::materialize"), std::string::npos) << error.what();
    }
  }
  materialize({unread});
  EXPECT_EQ(unread.data_ptr<float>()[5], truth.data_ptr<float>()[5]);
}

TEST(Deferred, aliases_are_materialised_together) {
  at::Tensor parameter, detached, transposed;
  {
    const DeferredScope scope;
    parameter = at::empty({6, 3}).requires_grad_(true);
    const at::NoGradGuard no_grad;
    parameter.normal_();
    detached = parameter.detach();
    transposed = parameter.t();
  }
  EXPECT_TRUE(is_deferred(transposed));
  materialize({parameter});
  EXPECT_FALSE(is_deferred(transposed));
  EXPECT_TRUE(at::equal(transposed + 0, parameter.t()));
  EXPECT_EQ(detached.data_ptr<float>(), parameter.data_ptr<float>());
}

TEST(Deferred, parameters_may_get_other_memory_or_die) {
  std::vector<at::Tensor> made;
  {
    const DeferredScope scope;
    for (int i = 0; i < 4; ++i) made.push_back(at::randn({8, 8}));
  }
  made[0] = at::Tensor();
  made[1].set_data(at::ones({8, 8}));  // as module->to() and sharding do
  EXPECT_FALSE(is_deferred(made[1]));
  EXPECT_EQ(made[1].sum().item<float>(), 64);
  materialize_empty(made[2]);
  EXPECT_FALSE(is_deferred(made[2]));
  made[2].fill_(3);
  EXPECT_EQ(made[2].sum().item<float>(), 192);
  materialize_empty(at::ones({2}));
  materialize({at::ones({2}), made[3]});
  EXPECT_FALSE(is_deferred(made[3]));
}

TEST(Deferred, scopes_nest_and_end) {
  {
    const DeferredScope outer;
    {
      const DeferredScope inner;
      EXPECT_TRUE(is_deferred(at::empty({4})));
    }
    EXPECT_TRUE(is_deferred(at::empty({4})));
    EXPECT_FALSE(is_deferred(at::empty({0})));
    EXPECT_FALSE(is_deferred(at::empty({4}, at::TensorOptions().device(at::kMeta))));
    std::thread([] { EXPECT_FALSE(is_deferred(at::empty({4}))); }).join();
  }
  EXPECT_FALSE(is_deferred(at::empty({4})));
}

TEST(Deferred, errors_come_where_they_would) {
  const DeferredScope scope;
  at::Tensor leaf = at::empty({4}).requires_grad_(true);
  EXPECT_THROW(leaf.uniform_(), c10::Error);  // a leaf, in place, without NoGradGuard
  at::Tensor integers = at::empty({4}, at::kLong);
  EXPECT_THROW(integers.normal_(), c10::Error);
  EXPECT_THROW(integers.erfinv_(), c10::Error);
  at::Tensor t = at::empty({4});
  EXPECT_THROW(t.uniform_(2, 1), c10::Error);
  EXPECT_THROW(at::empty({-1}), c10::Error);
}

TEST(Deferred, threads_may_read_at_once) {
  for (int round = 0; round < 20; ++round) {
    seed(9);
    const at::Tensor truth = at::randn({300, 30});
    seed(9);
    at::Tensor shared;
    {
      const DeferredScope scope;
      shared = at::randn({300, 30});
    }
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&] { EXPECT_TRUE(at::equal(shared, truth)); });
    for (std::thread& thread : threads) thread.join();
  }
}

// After any draw into any size, contiguous or not, the random state and the values are the eager ones.
RC_GTEST_PROP(DeferredRandom, state_and_values_as_eager, ()) {
  const auto rows = *rc::gen::inRange<std::int64_t>(1, 300), columns = *rc::gen::inRange<std::int64_t>(1, 300);
  const auto dtype = *rc::gen::element(at::kFloat, at::kDouble, at::kBFloat16, at::kHalf);
  const auto draws = *rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 8));
  const auto draw = [&](at::Tensor t) {
    for (const int d : draws) {
      if (d == 0) t.uniform_(-1, 1);
      if (d == 1) t.normal_(0.5, 2);
      if (d == 2) t.bernoulli_(0.3);
      if (d == 3) t.narrow(1, 0, (columns + 1) / 2).normal_();
      if (d == 4) t.select(0, 0).normal_();
      if (d == 5) t.t().uniform_();
      if (d == 6) t.random_(0, 50);
      if (d == 7) t.select(1, 0).exponential_(2);
    }
    return t;
  };
  seed(123);
  const at::Tensor eager = draw(at::zeros({rows, columns}, dtype));
  const auto state = random_state();
  seed(123);
  at::Tensor tensor;
  {
    const DeferredScope scope;
    tensor = draw(at::zeros({rows, columns}, dtype));
  }
  RC_ASSERT(is_deferred(tensor));
  const auto after = random_state();
  RC_ASSERT(at::equal(state[0], after[0]));
  RC_ASSERT(at::equal(state[1], after[1]));
  materialize({tensor});
  RC_ASSERT(at::equal(tensor, eager));
}

std::int64_t resident_bytes() {
  std::ifstream file("/proc/self/statm");
  std::int64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

struct Large : nn::Module {
  std::vector<nn::Linear> layers;
  Large() {
    for (int i = 0; i < 8; ++i)
      layers.push_back(register_module(std::to_string(i), nn::Linear(2688, 2688)));  // 28.9 MB
  }
};

TEST(DeferredMemory, construction_and_replay_unit_by_unit) {
  {
    const auto warm = deferred<Mlp>();
  }
  const std::int64_t before = resident_bytes();
  const auto module = deferred<Large>();
  const std::int64_t grown = resident_bytes() - before;
  std::int64_t bytes = 0, largest = 0;
  for (const at::Tensor& p : module->parameters()) bytes += static_cast<std::int64_t>(p.nbytes());
  std::printf("model %.1f MB, resident growth of its construction %.2f MB\n", static_cast<double>(bytes) * 1e-6,
              static_cast<double>(grown) * 1e-6);
  EXPECT_GT(bytes, 230'000'000);
  EXPECT_LT(grown, 8'000'000);

  std::int64_t shards = 0;
  std::vector<at::Tensor> kept;
  for (const nn::Linear& layer : module->layers) {
    materialize(layer->parameters());
    std::int64_t unit = 0;
    for (at::Tensor& p : layer->parameters()) {
      unit += static_cast<std::int64_t>(p.nbytes());
      at::Tensor shard = p.detach().flatten().narrow(0, 0, p.numel() / 4).clone();
      shards += static_cast<std::int64_t>(shard.nbytes());
      kept.push_back(shard);
    }
    largest = std::max(largest, resident_bytes() - before - shards - unit);
    for (at::Tensor& p : layer->parameters()) p.set_data(at::empty({0}));
  }
  std::printf("replay unit by unit: at most %.2f MB above one unit and the shards\n",
              static_cast<double>(largest) * 1e-6);
  EXPECT_LT(largest, 8'000'000);
}

}  // namespace
