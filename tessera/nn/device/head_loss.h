#pragma once
/// \file
/// The loss of a language-model head and its gradients on a device: linear_cross_entropy.h without the full logits and
/// without blocking the host.

#include <ATen/core/Tensor.h>

#include <tessera/nn/linear_cross_entropy.h>

namespace tessera::nn {

/// Selection of the computed gradients.
struct HeadGradients {
  bool hidden = false, weight = false, bias = false;
  bool any() const { return hidden || weight || bias; }
};

/// The loss, an fp32 scalar, and its gradients in the shapes and types of hidden, weight and bias; undefined if not
/// requested.
struct HeadLoss {
  at::Tensor loss, dhidden, dweight, dbias;
};

/// Whether device_head_loss() supports this: on a CUDA device, with products in fp32 or bf16, the type of autocast or
/// that of hidden and weight.
bool device_computes_head(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias);

/// Same result as linear_cross_entropy(); requires device_computes_head(). Chunks of `chunk` tokens; 0: 8,192, or C if
/// that is more. Logits have the type of the products, or fp32 with a bias or a softcap; the losses are computed in
/// fp32 and added in double, in a fixed order. A label outside [0, V) other than ignored_label makes the loss and the
/// token's gradients NaN: the host would have to wait in order to throw.
HeadLoss device_head_loss(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& bias,
                          const at::Tensor& labels, double scale, const LossOptions& form, HeadGradients wanted,
                          std::int64_t chunk = 0);

}  // namespace tessera::nn
