#pragma once
/// \file
/// What stands behind attention in a block of the Llama family: one gated MLP for all tokens, or (moe_mlp.h) experts.

#include <tessera/models/layers.h>
#include <tessera/models/model_parts.h>
#include <tessera/nn/swiglu.h>

#include <cstdint>
#include <memory>

namespace tessera::models {

struct Mlp : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context) = 0;  ///< [B, T, C] -> [B, T, C]
};

/// down(a(gate(x)) * up(x)), a the activation that `kind` says.
struct GatedMlp : Mlp {
  GatedMlp(std::int64_t hidden, std::int64_t intermediate, bool with_bias, nn::GateKind kind = nn::GateKind::silu);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override;

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;  ///< [I, C], [I, C], [C, I]
  nn::GateKind kind;
};

}  // namespace tessera::models
