#pragma once
/// \file
/// The Llama family (Touvron et al. 2023) with a language-model head: Llama 1-3, Mistral, Qwen2, Qwen3, the models of
/// decoders/, and with a mixture of experts Mixtral, Qwen2-MoE, Qwen3-MoE, OLMoE, DeepSeek-V3, following transformers
/// (models/NAME/modeling_NAME.py); the configuration's values select the variant.
/// B batch, T tokens, C hidden size, H heads, K key heads, D head size, V vocabulary.

#include <tessera/architectures/spec.h>
#include <tessera/models/causal_lm.h>
#include <tessera/models/decoders/prediction.h>
#include <tessera/models/layers.h>
#include <tessera/models/mlp.h>
#include <tessera/models/model_parts.h>
#include <tessera/nn/rotary.h>
#include <memory>
#include <optional>

namespace tessera::models {

using architectures::ModelSpec;

/// Inputs of every layer in one forward pass, besides the hidden states.
struct LlamaContext : ForwardContext {
  nn::RotaryTable rotary = {}, local_rotary = {};
};

/// The computation of heads between their projections: rotation, cache, scores and mixing of values.
struct CausalHeads {
  CausalHeads(const ModelSpec& spec, std::int64_t index);
  /// q [B, T, H, D], k and v [B, T, K, D] (this rank's heads, starting with query head `first_head`) -> [B, T, H D].
  /// `training`: applies dropout to the weights.
  at::Tensor mixed(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const LlamaContext& context,
                   std::int64_t first_head, bool training) const;

  std::int64_t index, size, window;
  double scale, softcap, dropout;
  architectures::LayerRope rotation;
  bool interleaved;
};

struct Attention : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x, const LlamaContext& context) = 0;  ///< [B, T, C] -> [B, T, C]
  /// The first parameter that the layer uses.
  virtual const at::Tensor& first_weight() const = 0;
};

struct LlamaAttention : Attention {
  LlamaAttention(const ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return q_proj->weight; }

  /// [H D, C], or with gates [2 H D, C] (per head its query, then its gate), [K D, C], [K D, C], [C, H D]
  std::shared_ptr<Linear> q_proj, k_proj, v_proj, o_proj;
  std::shared_ptr<Norm> q_norm, k_norm;  ///< [D] each, or as wide as q and k (OLMoE); null: none
  CausalHeads heads;
  double clip;  ///< bound of the absolute values of q, k and v; 0: none
  bool gated;   ///< a head's output is multiplied by the sigmoid of its gate
};

struct LlamaDecoderLayer : torch::nn::Module {
  LlamaDecoderLayer(const ModelSpec& spec, std::int64_t index);
  /// x [B, T, C] -> [B, T, C]; depending on context.stage only the attention or only the MLP is added to x.
  at::Tensor forward(const at::Tensor& x, const std::shared_ptr<const LlamaContext>& context);
  void drop_attention();
  void drop_mlp();

  /// Null: absent, or that half of the block is in another stage. post_attention_layernorm is Llama's norm before the
  /// MLP, but other models' norm after attention.
  std::shared_ptr<Norm> before_attention, after_attention, before_mlp, after_mlp;
  std::shared_ptr<Attention> self_attn;  ///< a LlamaAttention, or a family's own class
  std::shared_ptr<Mlp> mlp;              ///< a GatedMlp, a PlainMlp, a PackedMlp or a MoeMlp
  std::shared_ptr<PredictionEnds> ends;  ///< null: one of the model's own blocks
  std::int64_t index;
  double residual_factor;
  architectures::Drops drops;
  architectures::Residual residual;
  /// The consumers of the norms before attention and before the MLP: a router computes in fp32, and linear attention
  /// mixes in its input's type.
  nn::NormReaders attention_reader, mlp_reader;
  ModelPart (*part)(ModelPart::Kind kind, std::int64_t block);  ///< describes one of its parts

 private:
  /// Returns the addend of attention or the MLP for the residual stream.
  at::Tensor branch(const at::Tensor& y, const std::shared_ptr<Norm>& after, const LlamaContext& context,
                    ForwardContext::Draw draw, double dropped) const;
};

struct LlamaModel : torch::nn::Module {
  explicit LlamaModel(const ModelSpec& spec);
  /// ids int64 [B, T] -> hidden states after the last norm [B, T, C], or the output of context.stage.
  at::Tensor forward(const at::Tensor& ids, ForwardContext context = {});
  /// Drops the modules that are in none of `parts`. Depths are part of the end. `embeddings_at_end`: the end also reads
  /// the embeddings.
  void drop_all_but(const std::vector<layout::StagePart>& parts, bool embeddings_at_end);

  /// Computes the hidden states of each of context.predictions from those of the model's end.
  void predict(const at::Tensor& hidden, const LlamaContext& given) const;

  std::shared_ptr<Table> embed_tokens;                     ///< [V, C]
  std::shared_ptr<Table> embed_positions;                  ///< [offset + P, C]; null: positions are rotated
  std::vector<std::shared_ptr<LlamaDecoderLayer>> layers;  ///< null, like the other members, if in another stage
  std::vector<std::shared_ptr<LlamaDecoderLayer>> depths;  ///< predict further tokens, in order; may be null
  std::shared_ptr<Norm> norm;
  architectures::Rope rope;
  std::optional<architectures::Rope> local_rope;
  architectures::Multipliers multipliers;
  double dropout;  ///< dropout of the embeddings
  std::int64_t position_offset;
  architectures::DecoderNames names;

 private:
  /// Rows of the embedding table, scaled and with noise, for the tokens that this process continues with.
  at::Tensor embedded(const at::Tensor& ids, const at::Tensor& positions, const LlamaContext& context) const;
};

class Llama : public CausalLm {
 public:
  /// Initializes weights from `seed` by Hugging Face's rule (_init_weights: N(0, initializer_range), biases 0, norms'
  /// factors 1), or by architectures/mup.h; without a seed they stay uninitialized.
  Llama(const Value& hf_config, std::optional<std::uint64_t> seed);

  std::vector<ModelPart> parts() const override;
  void freeze_predictions() override;

  std::shared_ptr<LlamaModel> model;
  std::shared_ptr<Table> lm_head;  ///< null when tied to embed_tokens

 protected:
  void drop_all_but(const std::vector<layout::StagePart>& parts) override;
  void drop_experts_but(std::int64_t first, std::int64_t count) override;
  at::Tensor hidden(const at::Tensor& ids, ForwardContext context) override;
  const at::Tensor& head() const override { return lm_head ? lm_head->weight : model->embed_tokens->weight; }
  at::Tensor head_bias() const override { return lm_head ? lm_head->bias : at::Tensor(); }
  double logit_softcap() const override { return spec().caps.logits; }

 private:
  double initial_std(const std::string& name) const;
  void initialise(std::uint64_t seed);
};

}  // namespace tessera::models
