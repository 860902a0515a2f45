#include <tessera/nn/gelu.h>

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor bias_gelu_tanh(const at::Tensor& x, const at::Tensor& bias) {
  return at::gelu(bias.defined() ? x + bias : x, "tanh");
}

}  // namespace tessera::nn
