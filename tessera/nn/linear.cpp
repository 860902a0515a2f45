#include <tessera/nn/linear.h>

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor linear(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias) {
  auto shape = x.sizes().vec();
  shape.back() = weight.size(1);
  const at::Tensor rows = x.reshape({-1, weight.size(0)});
  return (bias.defined() ? at::addmm(bias, rows, weight) : at::mm(rows, weight)).view(shape);
}

at::Tensor add_bias(const at::Tensor& x, const at::Tensor& delta, const at::Tensor& bias) {
  return bias.defined() ? x + (delta + bias) : x + delta;
}

}  // namespace tessera::nn
