#pragma once
/// \file
/// User modules for tests of checkpointing, and one training step in which every block runs through a given function.

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include <tessera/parallel/recompute/checkpoint_activations.h>

#include <functional>
#include <tuple>
#include <vector>

namespace checkpoint_test {

using torch::autograd::variable_list;

/// A user module: x + dropout(linear(gelu(linear(norm(x))))).
struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(std::int64_t size, double dropout = 0.1) {
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({size})));
    up = register_module("up", torch::nn::Linear(size, 4 * size));
    down = register_module("down", torch::nn::Linear(4 * size, size));
    drop = register_module("drop", torch::nn::Dropout(dropout));
  }
  at::Tensor forward(const at::Tensor& x) { return x + drop(down(at::gelu(up(norm(x))))); }

  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout drop{nullptr};
};
TORCH_MODULE(Block);

/// A transformer layer on nn::MultiheadAttention. x [T, B, C].
struct LayerImpl : torch::nn::Module {
  LayerImpl(std::int64_t size, std::int64_t heads) {
    attention = register_module(
        "attention", torch::nn::MultiheadAttention(torch::nn::MultiheadAttentionOptions(size, heads).dropout(0.1)));
    norm = register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({size})));
    mlp = register_module("mlp", Block(size));
  }
  at::Tensor forward(const at::Tensor& x) {
    const at::Tensor h = norm(x);
    return mlp(x + std::get<0>(attention(h, h, h)));
  }

  torch::nn::MultiheadAttention attention{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  Block mlp{nullptr};
};
TORCH_MODULE(Layer);

template <class M>
struct Stack {
  std::vector<M> blocks;
  template <class... Args>
  explicit Stack(int depth, Args... args) {
    at::manual_seed(7);
    for (int i = 0; i < depth; ++i) blocks.emplace_back(args...);
  }
  variable_list parameters() const {
    variable_list all;
    for (const M& block : blocks)
      for (const at::Tensor& p : block->parameters()) all.push_back(p);
    return all;
  }
};

using Function = std::function<at::Tensor(const at::Tensor&)>;
using Runner = std::function<at::Tensor(int, const Function&, const at::Tensor&)>;
inline at::Tensor plainly(int, const Function& f, const at::Tensor& x) { return f(x); }
inline at::Tensor with_checkpoints(int, const Function& f, const at::Tensor& x) { return tessera::checkpointed(f, x); }

struct Result {
  double loss;
  variable_list gradients;
  at::Tensor next_random;  ///< next draw of the generator
};

template <class M>
Result train_step(const Stack<M>& stack, at::Tensor x, const Runner& run) {
  at::manual_seed(11);
  for (std::size_t i = 0; i < stack.blocks.size(); ++i) {
    M block = stack.blocks[i];
    x = run(static_cast<int>(i), [block](const at::Tensor& h) mutable { return block(h); }, x);
  }
  const at::Tensor loss = x.square().mean();
  variable_list gradients = torch::autograd::grad({loss}, stack.parameters());
  return {loss.item<double>(), std::move(gradients), at::rand({4})};
}

inline void expect_same(const Result& a, const Result& b) {
  EXPECT_EQ(a.loss, b.loss);
  ASSERT_EQ(a.gradients.size(), b.gradients.size());
  for (std::size_t i = 0; i < a.gradients.size(); ++i) EXPECT_TRUE(at::equal(a.gradients[i], b.gradients[i])) << i;
  EXPECT_TRUE(at::equal(a.next_random, b.next_random)) << "the recomputation advanced the random stream";
}

inline void expect_same(const variable_list& a, const variable_list& b) {
  ASSERT_EQ(a.size(), b.size());
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(at::equal(a[i], b[i])) << i;
}

inline at::Tensor input(at::IntArrayRef sizes) {
  at::manual_seed(3);
  return at::randn(sizes);
}

}  // namespace checkpoint_test
