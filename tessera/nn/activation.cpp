#include <tessera/nn/activation.h>

#include <ATen/ATen.h>

#include <tessera/nn/gelu.h>

namespace tessera::nn {

at::Tensor activated(Activation activation, const at::Tensor& x, const at::Tensor& bias) {
  if (activation == Activation::gelu_tanh) return bias_gelu_tanh(x, bias);
  const at::Tensor u = bias.defined() ? x + bias : x;
  if (activation == Activation::gelu_erf) return at::gelu(u);
  if (activation == Activation::silu) return at::silu(u);
  const at::Tensor positive = at::relu(u);
  return activation == Activation::relu ? positive : positive.square();
}

}  // namespace tessera::nn
