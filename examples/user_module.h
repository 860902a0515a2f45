#pragma once
// A third-party model: a small transformer that uses only torch::nn and is unaware of ranks, shards and this library.
// The examples train it in parallel without changing a single line.

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/pimpl.h>

#include <ATen/ATen.h>

#include <cstdint>
#include <limits>

struct MyConfig {
  std::int64_t vocabulary = 64, width = 64, heads = 4, layers = 4, longest = 32;
};

/// Pre-norm block: x + attention(norm(x)), then x + mlp(norm(x)). x [T, B, C].
struct MyBlockImpl : torch::nn::Module {
  explicit MyBlockImpl(const MyConfig& c)
      : norm1(torch::nn::LayerNormOptions({c.width})),
        norm2(torch::nn::LayerNormOptions({c.width})),
        attention(torch::nn::MultiheadAttentionOptions(c.width, c.heads)),
        up(c.width, 4 * c.width),
        down(4 * c.width, c.width) {
    register_module("norm1", norm1);
    register_module("attention", attention);
    register_module("norm2", norm2);
    register_module("up", up);
    register_module("down", down);
  }

  at::Tensor forward(at::Tensor x, const at::Tensor& mask) {
    const at::Tensor h = norm1(x);
    x = x + std::get<0>(attention->forward(h, h, h, /*key_padding_mask=*/{}, /*need_weights=*/false, mask));
    return x + down(at::gelu(up(norm2(x))));
  }

  torch::nn::LayerNorm norm1, norm2;
  torch::nn::MultiheadAttention attention;
  torch::nn::Linear up, down;
};
TORCH_MODULE(MyBlock);

/// Next-token model. ids int64 [B, T] -> logits [B, T, V].
struct MyTransformerImpl : torch::nn::Module {
  explicit MyTransformerImpl(const MyConfig& c)
      : token(c.vocabulary, c.width),
        place(c.longest, c.width),
        norm(torch::nn::LayerNormOptions({c.width})),
        head(torch::nn::LinearOptions(c.width, c.vocabulary).bias(false)) {
    register_module("token", token);
    register_module("place", place);
    for (std::int64_t i = 0; i < c.layers; ++i) blocks->push_back(MyBlock(c));
    register_module("blocks", blocks);
    register_module("norm", norm);
    register_module("head", head);
  }

  at::Tensor forward(const at::Tensor& ids) {
    const std::int64_t length = ids.size(1);
    const at::Tensor mask = at::full({length, length}, -std::numeric_limits<float>::infinity(),
                                     token->weight.options().requires_grad(false))
                                .triu(1);
    at::Tensor x = (token(ids) + place(at::arange(length, ids.options()))).transpose(0, 1);  // [T, B, C]
    for (const auto& block : *blocks) x = block->as<MyBlockImpl>()->forward(x, mask);
    return head(norm(x)).transpose(0, 1);
  }

  torch::nn::Embedding token, place;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm;
  torch::nn::Linear head;
};
TORCH_MODULE(MyTransformer);
