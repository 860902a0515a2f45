#pragma once
/// \file
/// models/: ordinary torch::nn::Modules that know nothing of ranks. This header: what the trainer asks of a causal
/// language model. A family implements hidden() and head() and describes itself; the rest is here.

#include <torch/nn/module.h>

#include <tessera/base/value.h>
#include <tessera/data/dataset.h>
#include <tessera/models/kv_cache.h>
#include <tessera/models/regions.h>
#include <tessera/nn/documents.h>
#include <memory>
#include <string>
#include <vector>

namespace tessera::models {

/// Parameters and buffers carry Hugging Face's names (named_parameters() == keys of model.safetensors, tied ones once;
/// LoRA adapters besides as MODULE.lora_A.weight and MODULE.lora_B.weight).
class CausalLm : public torch::nn::Module {
 public:
  /// Sum over the scored positions of the cross-entropy of predicting labels[:, t+1] from ids[:, :t+1], times `scale`.
  /// fp32 scalar. Never builds the full logits. Rows longer than max_positions() throw InputError.
  at::Tensor loss(const data::Batch& batch, double scale);
  /// The same for ids, labels int64 [B, T] with one document per row.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels, double scale);

  /// fp32 logits [B, T, V] of ids int64 [B, T].
  at::Tensor logits(const at::Tensor& ids, const nn::DocumentStarts& documents = {});
  /// fp32 logits [B, V] after the last of T tokens that continue the cached ones; the cache grows by T.
  at::Tensor next_logits(const at::Tensor& ids, KvCache& cache);

  virtual std::int64_t vocab_size() const = 0;
  virtual std::int64_t max_positions() const = 0;
  /// config.json as Hugging Face writes it for this architecture (unknown members of a loaded config.json are kept).
  virtual const Value& hf_config() const = 0;
  /// Modules that LoRA adapts when none are named (PEFT's mapping for the family): {"q_proj", "v_proj"}.
  virtual std::vector<std::string> default_lora_targets() const = 0;
  /// FLOP of forward and backward per token: 6 N + 12 L H T (N parameters of matrix products; L layers, H heads x head
  /// size, T block_size; docs/performance.md).
  virtual double flops_per_token(std::int64_t block_size) const = 0;
  /// True for parameters that weight decay skips (biases and norms: everything of one dimension), by their full name.
  bool is_norm_or_bias(const std::string& parameter_name) const;

  /// Every region, in the order in which they begin: block 0, its attention, its MLP, block 1, ...
  virtual std::vector<Region> regions() const = 0;
  /// From now on regions run through `runner`; nullptr: directly.
  void set_region_runner(RegionRunner runner);

 protected:
  /// Hidden states after the last norm [B, T, C]. context.cache: ids continue it (then there are no documents).
  virtual at::Tensor hidden(const at::Tensor& ids, ForwardContext context) = 0;
  /// Weight of the head [V, C] (the embedding's when tied).
  virtual const at::Tensor& head() const = 0;

 private:
  at::Tensor checked_hidden(const at::Tensor& ids, const nn::DocumentStarts& documents, KvCache* cache);

  std::shared_ptr<const RegionRunner> runner_;
};

}  // namespace tessera::models
