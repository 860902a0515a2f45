#pragma once
/// \file
/// Linear attention by the gated delta rule (nn/recurrent/gated_delta.h), as Megatron-LM's GatedDeltaNet and
/// transformers' qwen3_next have it: queries, keys and values pass through a short convolution over the tokens before.

#include <tessera/models/llama.h>

#include <memory>

namespace tessera::models {

/// A layer's. H value heads, G key heads, each for H / G value heads; K and V: numbers of a key and of a value.
struct LinearAttention : Attention {
  LinearAttention(const ModelSpec& spec, std::int64_t index);
  /// Throws InputError for rows of several documents and for parts of sequences: a memory goes through all tokens.
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return in_proj->weight; }

  std::shared_ptr<Linear> in_proj;   ///< [2 G K + 2 H V + 2 H, C]: q, k, v, the gate of what is read, strengths, decays
  std::shared_ptr<Linear> out_proj;  ///< [C, H V]
  at::Tensor conv_weight;            ///< [2 G K + H V, tokens that one sees, itself the last]
  at::Tensor A_log, dt_bias;         ///< [H] each: decays are -exp(A_log) softplus(a + dt_bias)
  std::shared_ptr<Norm> norm;        ///< [V], of each head's reading
  architectures::Linear sizes;
  std::int64_t index;
};

}  // namespace tessera::models
