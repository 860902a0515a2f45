#include <tessera/nn/layer_norm.h>

#include <ATen/ATen.h>

#include <tessera/nn/linear.h>

namespace tessera::nn {

at::Tensor layer_norm(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias, double eps) {
  return at::layer_norm(x, {x.size(-1)}, weight, bias, eps);
}

ResidualNorm add_layer_norm(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& delta_bias, const at::Tensor& weight,
                            const at::Tensor& bias, double eps) {
  const at::Tensor sum = delta.defined() ? add_bias(x, delta, delta_bias) : x;
  return {sum, layer_norm(sum, weight, bias, eps)};
}

}  // namespace tessera::nn
