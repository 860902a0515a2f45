#include <tessera/models/language_model.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>

#include <cmath>
#include <utility>

namespace tessera::models {

at::Tensor ForwardContext::attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const nn::AttentionOptions& options) const {
  if (!part) return nn::attention(q, k, v, documents, options);
  return (*attention)(q, k, v, {.length = part->length, .documents = documents, .options = options});
}

at::Tensor ForwardContext::attend_both_ways(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                            const std::vector<std::int64_t>& lengths,
                                            const nn::AttentionOptions& options) const {
  return (*attention)(q, k, v, {.length = part->length, .lengths = lengths, .causal = false, .options = options});
}

at::Tensor ForwardContext::embedded(const at::Tensor& tokens) const {
  if (embedding_noise == 0) return tokens;
  const std::int64_t length = part ? part->length : tokens.size(1);
  const double bound = embedding_noise / std::sqrt(static_cast<double>(length * tokens.size(2)));
  return tokens + at::empty_like(tokens).uniform_(-bound, bound);
}

void LanguageModel::set_part_runner(PartRunner runner) {
  runner_ = runner ? std::make_shared<const PartRunner>(std::move(runner)) : nullptr;
}

void LanguageModel::set_attention(nn::AttentionFunction attention) {
  attention_ = attention ? std::make_shared<const nn::AttentionFunction>(std::move(attention)) : nullptr;
}

ForwardContext LanguageModel::context_of(const std::shared_ptr<const data::SequencePart>& part) const {
  if (part && !attention_)
    throw InputError(concat("a batch of parts of rows of ", part->length,
                            " tokens for a model whose attention sees whole rows: call set_attention() first"));
  return {.runner = runner_, .embedding_noise = embedding_noise(), .part = part, .attention = attention_};
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
