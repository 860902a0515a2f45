#pragma once
/// \file
/// GPT-NeoX (Black et al. 2022) and Pythia, as transformers/models/gpt_neox/modeling_gpt_neox.py computes them: layer
/// norms, attention and MLP beside one another, a part of each head rotated, one matrix for queries, keys and values.

#include <tessera/models/llama.h>

#include <memory>
#include <string>

namespace tessera::models {

/// Throws InputError as parse_llama_config does.
LlamaConfig parse_gpt_neox_config(const Value& json);

struct NeoxAttention : Attention {
  NeoxAttention(const LlamaConfig& config, std::int64_t index);
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context) override;
  const at::Tensor& first_weight() const override { return query_key_value->weight; }

  std::shared_ptr<Linear> query_key_value, dense;  ///< [H 3 D, C]: of each head q, k, v; [C, H D]
  CausalHeads heads;
};

/// As llama_tensor_name. The head is embed_out; transformers 5 has it as lm_head, and may write that.
std::string gpt_neox_tensor_name(const std::string& name_in_file, const Value& hf_config);

}  // namespace tessera::models
