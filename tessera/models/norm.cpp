#include <tessera/models/norm.h>

#include <ATen/ATen.h>

#include <tessera/nn/rms_norm.h>

namespace tessera::models {

RmsNorm::RmsNorm(std::int64_t size, double eps, bool from_one) : eps(eps), from_one(from_one) {
  weight = register_parameter("weight", at::empty({size}));
}

at::Tensor RmsNorm::forward(const at::Tensor& x) {
  if (!from_one) return nn::rms_norm(x, weight, eps);
  const auto wide = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return nn::rms_norm(x.to(wide), 1 + weight.to(wide), eps).to(x.scalar_type());
}

nn::ResidualNorm RmsNorm::add(const at::Tensor& x, const at::Tensor& delta, nn::NormReaders readers) {
  if (!from_one) return nn::add_rms_norm(x, delta, weight, eps, readers);
  if (x.scalar_type() == weight.scalar_type() && x.scalar_type() == at::kFloat)
    return nn::add_rms_norm(x, delta, 1 + weight, eps, readers);
  const at::Tensor sum = delta.defined() ? x + delta : x;
  return {sum, forward(sum)};
}

MeanNorm::MeanNorm(std::int64_t size, const NormForm& form) : size_(size), eps_(form.eps), from_one_(form.from_one) {
  if (form.weight) weight = register_parameter("weight", at::empty({size}));
  if (form.bias) bias = register_parameter("bias", at::empty({size}));
}

at::Tensor MeanNorm::factor(const at::Tensor& x) const {
  if (!weight.defined()) return at::ones({size_}, x.options());
  return from_one_ ? 1 + weight : weight;
}

at::Tensor MeanNorm::addend(const at::Tensor& x) const {
  return bias.defined() ? bias : at::zeros({size_}, weight.defined() ? weight.options() : x.options());
}

at::Tensor MeanNorm::forward(const at::Tensor& x) { return nn::layer_norm(x, factor(x), addend(x), eps_); }

nn::ResidualNorm MeanNorm::add(const at::Tensor& x, const at::Tensor& delta, nn::NormReaders readers) {
  return nn::add_layer_norm(x, delta, {}, factor(x), addend(x), eps_, readers);
}

std::shared_ptr<Norm> make_norm(const NormForm& form, std::int64_t size) {
  if (form.kind == NormKind::layer) return std::make_shared<MeanNorm>(size, form);
  return std::make_shared<RmsNorm>(size, form.eps, form.from_one);
}

}  // namespace tessera::models
