#pragma once
/// \file
/// The Llama family (Touvron et al. 2023) with a language-model head: Llama 1-3, Mistral, Qwen2, Qwen3, and with a
/// mixture of experts Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, DeepSeek-V3, as transformers/models/{llama,mistral,qwen2,
/// qwen3,mixtral,qwen2_moe,qwen3_moe,olmoe,deepseek_v3}/modeling_*.py compute it; the configuration says which.
/// B batch, T tokens, C hidden size, H heads, K key heads, D head size, V vocabulary.

#include <tessera/models/causal_lm.h>
#include <tessera/models/layers.h>
#include <tessera/models/llama_config.h>
#include <tessera/models/mlp.h>
#include <tessera/models/model_parts.h>
#include <tessera/nn/rotary.h>
#include <memory>
#include <optional>

namespace tessera::models {

/// What every layer of one forward pass needs besides the hidden states.
struct LlamaContext : ForwardContext {
  nn::RotaryTable rotary = {};
};

struct Attention : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x, const LlamaContext& context) = 0;  ///< [B, T, C] -> [B, T, C]
  /// A parameter that the layer begins with.
  virtual const at::Tensor& first_weight() const = 0;
};

struct LlamaAttention : Attention {
  LlamaAttention(const LlamaConfig& config, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return q_proj->weight; }

  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;  ///< [H D, C], [K D, C], [K D, C], [C, H D]
  std::shared_ptr<RmsNorm> q_norm, k_norm;                 ///< [D] each, or as wide as q and k (OLMoE); null: none
  std::int64_t index, head_size, window;
  double dropout, clip;  ///< clip: bound of the absolute values of q, k and v; 0: none
};

struct LlamaDecoderLayer : torch::nn::Module {
  LlamaDecoderLayer(const LlamaConfig& config, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const std::shared_ptr<const LlamaContext>& context);

  std::shared_ptr<RmsNorm> input_layernorm, post_attention_layernorm;
  std::shared_ptr<Attention> self_attn;  ///< a LlamaAttention or a LatentAttention
  std::shared_ptr<Mlp> mlp;              ///< a GatedMlp or a MoeMlp
  std::int64_t index;
  ModelPart (*part)(ModelPart::Kind kind, std::int64_t block);  ///< the names of its parts
};

struct LlamaModel : torch::nn::Module {
  explicit LlamaModel(const LlamaConfig& config);
  /// ids int64 [B, T] -> hidden states after the last norm [B, T, C], or of context.stage what it gives.
  at::Tensor forward(const at::Tensor& ids, ForwardContext context = {});
  /// Lets go of what is in none of `parts`. `tied`: the embeddings stay for the end, too.
  void drop_all_but(const std::vector<layout::StagePart>& parts, bool tied);

  std::shared_ptr<Table> embed_tokens;                     ///< [V, C]
  std::vector<std::shared_ptr<LlamaDecoderLayer>> layers;  ///< null, and so is the rest: in another stage
  std::shared_ptr<RmsNorm> norm;
  RopeConfig rope;
};

class Llama : public CausalLm {
 public:
  /// Weights are initialised from `seed` by Hugging Face's rule (_init_weights: N(0, initializer_range), biases 0,
  /// norms 1); without a seed they stay uninitialised.
  Llama(const Value& hf_config, std::optional<std::uint64_t> seed);

  std::int64_t vocab_size() const override { return config_.vocab_size; }
  std::int64_t max_positions() const override { return config_.rope.longest_sequence(); }
  const Value& hf_config() const override { return hf_config_; }
  std::vector<std::string> default_lora_targets() const override;
  double flops_per_token(std::int64_t block_size) const override;
  layout::DecoderShape shape() const override;
  layout::TensorPlan tensor_plan() const override;
  std::vector<ModelPart> parts() const override;
  std::optional<std::int64_t> expert_of(const std::string& parameter) const override;
  std::string tied_parameter() const override { return config_.tie_word_embeddings ? "model.embed_tokens.weight" : ""; }

  std::shared_ptr<LlamaModel> model;
  std::shared_ptr<Table> lm_head;  ///< null when tied to embed_tokens

 protected:
  void drop_all_but(const std::vector<layout::StagePart>& parts) override;
  void drop_experts_but(std::int64_t first, std::int64_t count) override;
  at::Tensor hidden(const at::Tensor& ids, ForwardContext context) override;
  const at::Tensor& head() const override { return lm_head ? lm_head->weight : model->embed_tokens->weight; }

 private:
  void initialise(std::uint64_t seed);

  Value hf_config_;
  LlamaConfig config_;
};

/// Hugging Face's name of a tensor found in a folder. Empty for what is no parameter (rotary_emb.inv_freq of old
/// versions, a tied lm_head.weight).
std::string llama_tensor_name(const std::string& name_in_file, const Value& hf_config);

}  // namespace tessera::models
