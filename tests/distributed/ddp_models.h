#pragma once
/// \file
/// Small ordinary modules for the data-parallel tests, and batches that every rank can create without communication.

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/nn/module.h>
#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/functional.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/nn/modules/rnn.h>

namespace tessera::testing {

/// x [B, 12] -> [B, 5]. The common interface of the models below: forward(x).
struct Model : torch::nn::Module {
  virtual at::Tensor forward(at::Tensor x) = 0;
};

/// A smaller version of spec/001's SimpleModel: Sequential(Linear, ReLU, Linear).
struct SimpleModel : Model {
  torch::nn::Sequential layers{torch::nn::Linear(12, 32), torch::nn::Functional(at::relu), torch::nn::Linear(32, 5)};
  SimpleModel() { register_module("layers", layers); }
  at::Tensor forward(at::Tensor x) override { return layers->forward(x); }
};

/// One layer used twice, and one weight registered under two names.
struct SharedModel : Model {
  torch::nn::Linear in{12, 12}, twice{12, 12};
  at::Tensor tied, bias;
  SharedModel() {
    register_module("in", in);
    register_module("twice", twice);
    tied = register_parameter("tied", in->weight);  // the same tensor
    bias = register_parameter("bias", at::zeros({5}));
  }
  at::Tensor forward(at::Tensor x) override {
    x = at::tanh(twice->forward(at::tanh(twice->forward(at::tanh(in->forward(x))))));
    return at::matmul(x, tied.t()).narrow(1, 0, 5) + bias;
  }
};

/// Convolution and group norm, with a frozen layer in between.
struct ConvModel : Model {
  torch::nn::Conv2d conv{torch::nn::Conv2dOptions(1, 4, 3).padding(1)};
  torch::nn::GroupNorm norm{torch::nn::GroupNormOptions(2, 4)};
  torch::nn::Linear frozen{48, 16}, head{16, 5};
  ConvModel() {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("frozen", frozen);
    register_module("head", head);
    for (at::Tensor& p : frozen->parameters()) p.requires_grad_(false);
  }
  at::Tensor forward(at::Tensor x) override {
    x = at::relu(norm->forward(conv->forward(x.view({-1, 1, 3, 4}))));
    return head->forward(at::relu(frozen->forward(x.flatten(1))));
  }
};

/// LSTM over three steps of four features, then attention over its outputs.
struct SequenceModel : Model {
  torch::nn::LSTM lstm{torch::nn::LSTMOptions(4, 8).batch_first(true)};
  torch::nn::MultiheadAttention attention{torch::nn::MultiheadAttentionOptions(8, 2)};
  torch::nn::Linear head{8, 5};
  SequenceModel() {
    register_module("lstm", lstm);
    register_module("attention", attention);
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) override {
    at::Tensor h = std::get<0>(lstm->forward(x.view({-1, 3, 4}))).transpose(0, 1);  // [3, B, 8]
    h = std::get<0>(attention->forward(h, h, h));
    return head->forward(h.mean(0));
  }
};

/// Batch normalization: buffers of two dtypes.
struct BatchNormModel : Model {
  torch::nn::Linear in{12, 16}, head{16, 5};
  torch::nn::BatchNorm1d norm{16};
  BatchNormModel() {
    register_module("in", in);
    register_module("norm", norm);
    register_module("head", head);
  }
  at::Tensor forward(at::Tensor x) override { return head->forward(at::relu(norm->forward(in->forward(x)))); }
};

/// Inputs [rows, 12] and targets [rows, 5] for one step of the whole job.
struct Batch {
  at::Tensor x, y;
};
inline Batch global_batch(int step, std::int64_t rows, at::ScalarType dtype = at::kFloat) {
  at::Generator generator = at::detail::getDefaultCPUGenerator().clone();
  generator.set_current_seed(1000 + static_cast<std::uint64_t>(step));
  const auto options = at::TensorOptions(at::kDouble);
  const at::Tensor x = at::randn({rows, 12}, generator, options), y = at::randn({rows, 5}, generator, options);
  return {x.to(dtype), y.to(dtype)};
}
/// Part `i` of `n` equal parts.
inline Batch part(const Batch& batch, std::int64_t i, std::int64_t n) {
  const std::int64_t rows = batch.x.size(0) / n;
  return {batch.x.narrow(0, i * rows, rows), batch.y.narrow(0, i * rows, rows)};
}
inline at::Tensor mean_loss(Model& model, const Batch& batch) {
  return (model.forward(batch.x) - batch.y).square().mean();
}

}  // namespace tessera::testing
