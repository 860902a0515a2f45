#pragma once
/// \file
/// models/: ordinary torch::nn::Modules that know nothing of ranks. This header: what the trainer asks of a causal
/// language model.

#include <torch/nn/module.h>

#include <tessera/base/value.h>
#include <memory>
#include <string>

namespace tessera::models {

/// Keys and values of the tokens seen so far, per layer: [B, heads, tokens, head size]. Made empty; filled by logits().
struct KvCache {
  std::vector<at::Tensor> keys, values;
  std::int64_t tokens() const { return keys.empty() || !keys[0].defined() ? 0 : keys[0].size(2); }
};

/// Parameters and buffers carry Hugging Face's names (named_parameters() == keys of model.safetensors, tied ones once).
class CausalLm : public torch::nn::Module {
 public:
  /// Sum over scored positions of the cross-entropy of predicting labels[:, t+1] from ids[:, :t+1], times `scale`.
  /// ids, labels: int64 [B, T]; label -100 is not scored. fp32 scalar. Never builds the full logits.
  virtual at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels, double scale) = 0;
  /// fp32 logits [B, T, V]; with a cache, ids continue the cached tokens and the cache grows by T.
  virtual at::Tensor logits(const at::Tensor& ids, KvCache* cache = nullptr) = 0;

  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t max_positions() const = 0;
  /// config.json as Hugging Face writes it for this architecture (unknown members of a loaded config.json are kept).
  virtual const Value& hf_config() const = 0;
  /// True for parameters that weight decay skips (biases and norms), by their full name.
  virtual bool is_norm_or_bias(const std::string& parameter_name) const = 0;
  /// Matrix-multiply parameters, for FLOP counts (6N + 12 L H T, docs/performance.md): N, and
  /// 12*L*heads*head_size*T/token.
  virtual double flops_per_token(std::int64_t block_size) const = 0;
};

}  // namespace tessera::models
