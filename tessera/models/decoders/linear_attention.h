#pragma once
/// \file
/// Linear attention by the gated delta rule (nn/recurrent/gated_delta.h), as in Megatron-LM's GatedDeltaNet and
/// transformers' qwen3_next: queries, keys and values pass through a short convolution over the preceding tokens.

#include <tessera/models/llama.h>

#include <memory>

namespace tessera::models {

/// One layer. H value heads, G key heads, each for H / G value heads; K and V: sizes of a key and of a value.
struct LinearAttention : Attention {
  LinearAttention(const ModelSpec& spec, std::int64_t index);
  /// Throws InputError for rows of several documents and for parts of sequences: the memory passes through all tokens.
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return in_proj->weight; }

  std::shared_ptr<Linear> in_proj;   ///< [2 G K + 2 H V + 2 H, C]: q, k, v, output gate, strengths, decays
  std::shared_ptr<Linear> out_proj;  ///< [C, H V]
  at::Tensor conv_weight;            ///< [2 G K + H V, kernel size in tokens; the token itself is last]
  at::Tensor A_log, dt_bias;         ///< [H] each: decays are -exp(A_log) softplus(a + dt_bias)
  std::shared_ptr<Norm> norm;        ///< [V], for each head's output
  architectures::Linear sizes;
  std::int64_t index;
};

}  // namespace tessera::models
