#include <tessera/nn/linear_cross_entropy.h>

#include <ATen/ATen.h>

namespace tessera::nn {

at::Tensor linear_cross_entropy(const at::Tensor& hidden, const at::Tensor& weight, const at::Tensor& labels, double scale) {
  const std::int64_t t = hidden.size(1), c = hidden.size(2);
  const at::Tensor rows = hidden.slice(1, 0, t - 1).reshape({-1, c});
  const at::Tensor targets = labels.slice(1, 1).reshape({-1});
  const at::Tensor logits = at::mm(rows, weight.t());
  const auto wide = weight.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return at::cross_entropy_loss(logits.to(wide), targets, {}, at::Reduction::Sum, ignored_label) * scale;
}

}  // namespace tessera::nn
