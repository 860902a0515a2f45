#pragma once
/// \file
/// The members of a config.json that say how a model's mixture of experts is made (transformers/models/{mixtral,
/// qwen2_moe,qwen3_moe,olmoe,deepseek_v3}/configuration_*.py), or that of Megatron's own (decoders/megatron_gpt.h).

#include <tessera/base/value.h>
#include <tessera/models/router_log.h>
#include <tessera/nn/activation.h>
#include <tessera/nn/moe/router.h>

#include <cstdint>
#include <string>
#include <vector>

namespace tessera::models {

struct MoeConfig {
  nn::RouterOptions router;       ///< experts and how many of them see a token, too
  std::int64_t intermediate = 0;  ///< width of one expert
  bool gated = true;              ///< false: an expert is down(activation(up(x)))
  nn::Activation activation = nn::Activation::gelu_erf;
  double jitter = 0;                     ///< router_jitter_noise
  bool selection_bias = false;           ///< gate.e_score_correction_bias
  std::int64_t shared_intermediate = 0;  ///< width of the MLP beside them that sees every token; 0: none
  bool shared_gate = false;              ///< it is multiplied by sigmoid(shared_expert_gate(x))
  std::string shared_name;               ///< "shared_expert", "shared_experts"
  /// Names of an expert's matrices: "w1", "w3", "w2" (Mixtral); "gate_proj", "up_proj", "down_proj".
  std::string gate_name = "gate_proj", up_name = "up_proj", down_name = "down_proj";
  BalanceOptions balance;
  std::vector<bool> sparse;  ///< per layer: experts; else one MLP
};

/// `type`: config.json's model_type, one of the above. Throws InputError "file:line:column: ..." for a missing key and
/// numbers that contradict each other.
MoeConfig parse_moe_config(const Value& json, const std::string& type, std::int64_t layers);

}  // namespace tessera::models
