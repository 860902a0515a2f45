#pragma once
/// \file
/// The part of a Llama block after attention: one MLP for all tokens, gated or not, or experts (moe_mlp.h).

#include <tessera/models/activation.h>
#include <tessera/models/layers.h>
#include <tessera/models/model_parts.h>
#include <tessera/nn/swiglu.h>

#include <cstdint>
#include <memory>
#include <string>

namespace tessera::models {

struct Mlp : torch::nn::Module {
  virtual at::Tensor forward(const at::Tensor& x, const ForwardContext& context) = 0;  ///< [B, T, C] -> [B, T, C]
  virtual const at::Tensor& first_weight() const = 0;  ///< the first parameter that the layer uses
};

/// down(a(gate(x)) * up(x)) with activation a selected by `kind`.
struct GatedMlp : Mlp {
  GatedMlp(std::int64_t hidden, std::int64_t intermediate, bool with_bias, nn::GateKind kind = nn::GateKind::silu);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override;
  const at::Tensor& first_weight() const override { return gate_proj->weight; }

  std::shared_ptr<Linear> gate_proj, up_proj, down_proj;  ///< [I, C], [I, C], [C, I]
  nn::GateKind kind;
};

/// down(activation(up(x))).
struct PlainMlp : Mlp {
  /// `up_name`, `down_name`: names of the two modules.
  PlainMlp(std::int64_t hidden, std::int64_t intermediate, bool with_bias, Activation activation,
           const std::string& up_name, const std::string& down_name);
  at::Tensor forward(const at::Tensor& x, const ForwardContext& context) override;
  const at::Tensor& first_weight() const override { return up->weight; }

  std::shared_ptr<Linear> up, down;  ///< [I, C], [C, I]
  Activation activation;
};

}  // namespace tessera::models
