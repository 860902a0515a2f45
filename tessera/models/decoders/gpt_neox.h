#pragma once
/// \file
/// models/decoders/: blocks that differ from Llama's.
///
/// GPT-NeoX (Black et al. 2022) and Pythia, following transformers/models/gpt_neox/modeling_gpt_neox.py: layer norms,
/// attention and MLP in parallel, a part of each head rotated, one matrix for queries, keys and values.

#include <tessera/models/llama.h>

#include <memory>

namespace tessera::models {

struct NeoxAttention : Attention {
  NeoxAttention(const ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return query_key_value->weight; }

  std::shared_ptr<Linear> query_key_value, dense;  ///< [H 3 D, C]: per head q, k, v; [C, H D]
  CausalHeads heads;
};

}  // namespace tessera::models
