#include <tessera/models/language_model.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

#include <cmath>
#include <utility>

namespace tessera::models {

at::Tensor ForwardContext::embedded(const at::Tensor& tokens) const {
  if (embedding_noise == 0) return tokens;
  const double bound = embedding_noise / std::sqrt(static_cast<double>(tokens.size(1) * tokens.size(2)));
  return tokens + at::empty_like(tokens).uniform_(-bound, bound);
}

void LanguageModel::set_part_runner(PartRunner runner) {
  runner_ = runner ? std::make_shared<const PartRunner>(std::move(runner)) : nullptr;
}

void LanguageModel::set_label_smoothing(double share) {
  TESSERA_CHECK(share >= 0 && share < 1, "label smoothing of ", share, "; it must lie in [0, 1)");
  label_smoothing_ = share;
}

bool LanguageModel::is_norm_or_bias(const std::string& parameter_name) const {
  const auto parameters = named_parameters();
  const at::Tensor* parameter = parameters.find(parameter_name);
  TESSERA_CHECK(parameter, "the model has no parameter ", parameter_name);
  return parameter->dim() < 2;
}

}  // namespace tessera::models
