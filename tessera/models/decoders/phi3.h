#pragma once
/// \file
/// Phi-3 and Phi-4-mini (Abdin et al. 2024), following transformers/models/phi3/modeling_phi3.py: queries, keys and
/// values come from one matrix, gate and up from another; a part of each head may be rotated; dropout is applied to the
/// outputs of attention and the MLP.

#include <tessera/models/llama.h>

#include <memory>

namespace tessera::models {

struct PackedAttention : Attention {
  PackedAttention(const ModelSpec& spec, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return qkv_proj->weight; }

  std::shared_ptr<Linear> qkv_proj, o_proj;  ///< [(H + 2 K) D, C]: q, k, v consecutively; [C, H D]
  CausalHeads heads;
  std::int64_t query_heads, key_heads;
};

/// down(a(gate) * up), (gate, up) = gate_up(x).
struct PackedMlp : Mlp {
  PackedMlp(std::int64_t hidden, std::int64_t intermediate, nn::GateKind kind);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override;
  const at::Tensor& first_weight() const override { return gate_up_proj->weight; }

  std::shared_ptr<Linear> gate_up_proj, down_proj;  ///< [2 I, C], [C, I]
  nn::GateKind kind;
};

}  // namespace tessera::models
