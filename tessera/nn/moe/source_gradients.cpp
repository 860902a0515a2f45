#include <tessera/nn/moe/source_gradients.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

#include <utility>

namespace tessera::nn {

void SourceGradients::add(const at::Tensor& weight, const std::vector<at::Tensor>& gradients) {
  TESSERA_CHECK(static_cast<std::int64_t>(gradients.size()) == sources_ - 1, gradients.size(), " gradients of ",
                sources_ - 1, " sources after the first");
  const std::lock_guard lock(mutex_);
  std::vector<at::Tensor>& there = of_weight_[weight.unsafeGetTensorImpl()];
  if (there.empty()) {
    there = gradients;
    return;
  }
  for (std::size_t i = 0; i < there.size(); ++i) there[i] = there[i] + gradients[i];
}

std::vector<at::Tensor> SourceGradients::take(const at::Tensor& weight) {
  const std::lock_guard lock(mutex_);
  const auto found = of_weight_.find(weight.unsafeGetTensorImpl());
  if (found == of_weight_.end()) return {};
  std::vector<at::Tensor> gradients = std::move(found->second);
  of_weight_.erase(found);
  return gradients;
}

void SourceGradients::clear() {
  const std::lock_guard lock(mutex_);
  of_weight_.clear();
}

}  // namespace tessera::nn
