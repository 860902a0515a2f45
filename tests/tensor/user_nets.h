#pragma once
/// \file
/// User transformers built on torch::nn alone, without any knowledge of ranks, and their training in one process with
/// the whole batch, which tensor parallelism must reproduce.

#include <gtest/gtest.h>

#include <ATen/ATen.h>
#include <torch/nn/cloneable.h>

#include <torch/nn/functional/linear.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <examples/user_module.h>
#include <tessera/base/text.h>
#include <tessera/comm/mesh_groups.h>
#include <tessera/nn/autocast.h>
#include <tessera/parallel/fully_shard.h>
#include <tessera/parallel/recompute/checkpoint_activations.h>
#include <tessera/parallel/tensor_parallel.h>
#include <tests/distributed/harness.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tessera::testing {

constexpr std::int64_t net_rows = 4, net_tokens = 8, net_vocabulary = 37;

/// Attention that derives its number of heads from its activations; x [B, T, C].
struct HeadsBlockImpl : torch::nn::Cloneable<HeadsBlockImpl> {
  std::int64_t width, head_size;
  torch::nn::LayerNorm norm1 = nullptr, norm2 = nullptr;
  torch::nn::Linear qkv = nullptr, out = nullptr, up = nullptr, down = nullptr;

  HeadsBlockImpl(std::int64_t width_, std::int64_t heads) : width(width_), head_size(width_ / heads) { reset(); }
  void reset() override {
    norm1 = register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    norm2 = register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    qkv = register_module("qkv", torch::nn::Linear(width, 3 * width));
    out = register_module("out", torch::nn::Linear(width, width));
    up = register_module("up", torch::nn::Linear(width, 4 * width));
    down = register_module("down", torch::nn::Linear(4 * width, width));
  }
  at::Tensor heads_of(const at::Tensor& x) const {
    return x.reshape({x.size(0), x.size(1), -1, head_size}).transpose(1, 2);
  }
  at::Tensor forward(const at::Tensor& x) {
    const auto parts = qkv(norm1(x)).chunk(3, -1);
    const at::Tensor y = at::scaled_dot_product_attention(heads_of(parts[0]), heads_of(parts[1]), heads_of(parts[2]),
                                                          {}, 0.0, /*is_causal=*/true);
    const at::Tensor z = x + out(y.transpose(1, 2).flatten(2));
    return z + down(at::gelu(up(norm2(z))));
  }
};
TORCH_MODULE(HeadsBlock);

struct NetOptions {
  bool tied = false;       ///< the head shares the table's weight
  bool places = true;      ///< learned positions
  bool recompute = false;  ///< recompute the blocks' activations in backward
};

/// ids int64 [B, T] -> logits [B, T, V].
struct HeadsNetImpl : torch::nn::Cloneable<HeadsNetImpl> {
  NetOptions options;
  torch::nn::Embedding token = nullptr, place = nullptr;
  torch::nn::ModuleList blocks = nullptr;
  torch::nn::LayerNorm norm = nullptr;
  torch::nn::Linear head = nullptr;

  explicit HeadsNetImpl(NetOptions given = {}) : options(given) { reset(); }
  void reset() override {
    constexpr std::int64_t width = 16;
    token = register_module("token", torch::nn::Embedding(net_vocabulary, width));
    place = register_module("place", torch::nn::Embedding(net_tokens, width));
    blocks = register_module("blocks", torch::nn::ModuleList());
    for (int i = 0; i < 2; ++i) blocks->push_back(HeadsBlock(width, 4));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({width})));
    if (!options.tied) head = register_module("head", torch::nn::Linear(width, net_vocabulary));
  }
  at::Tensor forward(const at::Tensor& ids) {
    at::Tensor x = token(ids);
    if (options.places) x = x + place(at::arange(ids.size(1), ids.options()));
    for (const auto& each : *blocks) {
      const auto block = std::dynamic_pointer_cast<HeadsBlockImpl>(each);
      x = options.recompute ? checkpointed([block](const at::Tensor& h) { return block->forward(h); }, x)
                            : block->forward(x);
    }
    x = norm(x);
    return options.tied ? torch::nn::functional::linear(x, token->weight) : head(x);
  }
};
TORCH_MODULE(HeadsNet);

/// A module in training, of any structure.
struct User {
  std::shared_ptr<torch::nn::Module> module;
  std::function<at::Tensor(const at::Tensor& ids)> logits;
};
/// The same values on every rank.
inline User heads_net(NetOptions options = {}) {
  at::manual_seed(21);
  const auto net = std::make_shared<HeadsNetImpl>(options);
  return {net, [net](const at::Tensor& ids) { return net->forward(ids); }};
}
/// examples/user_module.h: torch::nn::MultiheadAttention, activations [T, B, C].
inline User attention_net() {
  at::manual_seed(22);
  const auto net = std::make_shared<MyTransformerImpl>(
      MyConfig{.vocabulary = net_vocabulary, .width = 16, .heads = 4, .layers = 2, .longest = net_tokens});
  return {net, [net](const at::Tensor& ids) { return net->forward(ids); }};
}

inline TensorPlan attention_plan() {
  using enum TensorStyle;
  return {{"attention.in_proj_weight", colwise_gather_output, 3},
          {"attention.out_proj", rowwise_split_input},
          {"up", colwise},
          {"down", rowwise},
          {"token", embedding_rowwise},
          {"head", colwise_gather_output}};
}
/// For use with and without sequence parallelism.
inline TensorPlan heads_plan() {
  using enum TensorStyle;
  return {{"qkv", colwise, 3, 4},       {"up", colwise},
          {"out|down", rowwise},        {"token|place", embedding_rowwise},
          {"norm*", sequence_parallel}, {"head", colwise_gather_output}};
}

/// For the tied net, whose head is the table.
inline TensorPlan tied_plan() {
  TensorPlan plan = heads_plan();
  plan.pop_back();
  return plan;
}

struct NetRun {
  std::vector<double> losses, norms;
  std::map<std::string, at::Tensor> gradients;  ///< whole, of the first step
  std::map<std::string, at::Tensor> weights;    ///< whole, after the last step
};
struct NetTraining {
  int steps = 10;
  at::ScalarType dtype = at::kFloat;
  bool bf16 = false;
  int accumulation = 1;
  std::vector<std::string> frozen = {};
};

/// Mean loss of rows [first, first + rows) of a step's batch.
inline at::Tensor net_loss(const User& user, int step, std::int64_t first, std::int64_t rows, bool bf16 = false) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(70 + static_cast<std::uint64_t>(step));
  const at::Tensor ids =
      at::randint(0, net_vocabulary, {net_rows, net_tokens + 1}, generator, at::kLong).narrow(0, first, rows);
  const nn::Autocast precision(bf16, at::kCPU);
  const at::Tensor logits = user.logits(ids.narrow(1, 0, net_tokens));
  return at::cross_entropy_loss(
      logits.reshape({-1, net_vocabulary}).to(at::promoteTypes(at::kFloat, logits.scalar_type())),
      ids.narrow(1, 1, net_tokens).reshape({-1}));
}

constexpr double net_rate = 0.1;
inline void freeze(const User& user, const NetTraining& training) {
  for (const std::string& name : training.frozen) user.module->named_parameters()[name].requires_grad_(false);
}

/// Trains the module's own parameters by SGD on all rows, with or without tensor parallelism.
inline NetRun train_own(const User& user, const NetTraining& training) {
  NetRun run;
  for (int step = 0; step < training.steps; ++step) {
    user.module->zero_grad();
    double mean = 0;
    const std::int64_t rows = net_rows / training.accumulation;
    for (int m = 0; m < training.accumulation; ++m) {
      const at::Tensor loss = net_loss(user, step, m * rows, rows, training.bf16) / training.accumulation;
      loss.backward();
      mean += loss.item<double>();
    }
    run.losses.push_back(mean);
    double squares = 0;
    for (const auto& p : user.module->named_parameters()) {
      if (!p.value().grad().defined()) continue;
      const at::Tensor gradient = gather_tensor_parts(p.value(), p.value().grad());
      squares += gradient.to(at::kDouble).square().sum().item<double>();
      if (step == 0) run.gradients[p.key()] = gradient.clone();
    }
    run.norms.push_back(std::sqrt(squares));
    const at::NoGradGuard no_grad;
    for (const auto& p : user.module->named_parameters())
      if (p.value().grad().defined()) at::Tensor(p.value()).sub_(p.value().grad(), net_rate);
  }
  for (const auto& p : user.module->named_parameters())
    run.weights[p.key()] = gather_tensor_parts(p.value(), p.value().detach()).clone();
  return run;
}

/// Trains under a data-parallel engine around the tensor-parallel module.
inline NetRun train_sharded(const User& user, const comm::Group& data, const std::string& strategy,
                            const std::vector<std::string>& blocks, const NetTraining& training) {
  Sharded sharded(*user.module, {.strategy = strategy, .group = data, .wrap = by_class(blocks)});
  std::map<std::string, at::Tensor> own;
  for (const auto& p : user.module->named_parameters()) own[p.key()] = p.value();
  NetRun run;
  const std::int64_t rows = net_rows / data.size() / training.accumulation;
  for (int step = 0; step < training.steps; ++step) {
    sharded.zero_grad();
    at::Tensor mean = at::zeros({1}, at::kDouble);
    for (int m = 0; m < training.accumulation; ++m) {
      std::optional<Sharded::NoSync> pause;
      if (m + 1 < training.accumulation) pause.emplace(sharded);
      const at::Tensor loss =
          net_loss(user, step, (data.rank() * training.accumulation + m) * rows, rows, training.bf16) /
          training.accumulation;
      loss.backward();
      mean += loss.item<double>() / data.size();
    }
    data.all_reduce(mean).wait();
    run.losses.push_back(mean.item<double>());
    run.norms.push_back(sharded.grad_norm());
    const at::NoGradGuard no_grad;
    for (const ShardedParameter& p : sharded.named_parameters()) {
      if (!p.local.grad().defined()) continue;
      if (step == 0)
        run.gradients[p.name] =
            gather_tensor_parts(own.at(p.name), sharded.gather_like(p, p.local.grad()).view(p.shape)).clone();
      at::Tensor(p.local).sub_(p.local.grad(), net_rate);
    }
  }
  sharded.visit_parameters([&](const std::string& name, const at::Tensor& value) {
    run.weights[name] = gather_tensor_parts(own.at(name), value).clone();
  });
  return run;
}

inline void expect_same_nets(const NetRun& got, const NetRun& wanted, double bar, const std::string& what) {
  ASSERT_EQ(got.losses.size(), wanted.losses.size()) << what;
  for (std::size_t i = 0; i < got.losses.size(); ++i) {
    EXPECT_NEAR(got.losses[i] / wanted.losses[i], 1, bar) << what << ": loss of step " << i;
    EXPECT_NEAR(got.norms[i] / wanted.norms[i], 1, bar) << what << ": gradient norm of step " << i;
  }
  ASSERT_EQ(got.gradients.size(), wanted.gradients.size()) << what;
  for (const auto& [name, gradient] : wanted.gradients) {
    ASSERT_EQ(got.gradients.at(name).sizes(), gradient.sizes()) << what << ": " << name;
    const double apart = (got.gradients.at(name).to(at::kDouble) - gradient.to(at::kDouble)).norm().item<double>();
    EXPECT_LE(apart, bar * std::max(gradient.norm().item<double>(), 1e-2 * wanted.norms[0]))
        << what << ": gradient of " << name;
  }
  for (const auto& [name, value] : wanted.weights) {
    const at::Tensor& mine = got.weights.at(name);
    ASSERT_EQ(mine.sizes(), value.sizes()) << what << ": " << name;
    EXPECT_LE((mine - value).to(at::kDouble).norm().item<double>(),
              bar * std::max(value.to(at::kDouble).norm().item<double>(), 1e-2))
        << what << ": " << name;
  }
}

}  // namespace tessera::testing
