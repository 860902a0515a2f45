#pragma once
/// \file
/// A module with every kind of tensor that is saved: trained and frozen parameters, and buffers of several types.

#include <tests/faces/loop.h>

#include <torch/nn/modules/batchnorm.h>

#include <cstdint>
#include <limits>
#include <memory>

namespace tessera::testing {

/// Has a frozen layer, batch statistics, and a buffer of infinities, as in masks.
struct MixedModel : Model {
  torch::nn::Linear in{12, 32}, frozen{32, 32}, out{32, 5};
  torch::nn::BatchNorm1d norm{32};
  at::Tensor mask;
  MixedModel() {
    register_module("in", in);
    register_module("frozen", frozen);
    register_module("norm", norm);
    register_module("out", out);
    mask = register_buffer("mask", at::full({32}, -std::numeric_limits<float>::infinity()));
    for (at::Tensor& p : frozen->parameters()) p.requires_grad_(false);
  }
  at::Tensor forward(at::Tensor x) override { return out(at::relu(at::maximum(norm(frozen(in(x))), mask))); }
};

/// A different seed gives different weights, so loading must replace all of them.
inline std::shared_ptr<MixedModel> make_mixed(std::uint64_t seed) {
  at::manual_seed(seed);
  return std::make_shared<MixedModel>();
}

}  // namespace tessera::testing
