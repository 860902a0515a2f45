#pragma once
/// \file
/// The members of a Llama-family config.json that the model uses (transformers/models/{llama,mistral,qwen2,qwen3}/
/// configuration_*.py, spellings of transformers 4 and 5).

#include <tessera/base/value.h>
#include <tessera/models/rope.h>
#include <cstdint>
#include <vector>

namespace tessera::models {

struct LlamaConfig {
  std::int64_t layers, hidden, heads, key_heads, head_size, intermediate, vocab_size, max_positions;
  double rms_norm_eps = 1e-6, initializer_range = 0.02, attention_dropout = 0;
  bool query_bias = false;   ///< biases of q_proj, k_proj, v_proj
  bool output_bias = false;  ///< bias of o_proj
  bool mlp_bias = false;
  bool query_key_norm = false;  ///< RMS norms of each head of q and k (Qwen3)
  bool tie_word_embeddings = false;
  std::vector<std::int64_t> windows;  ///< per layer: tokens that one sees; 0: all before it
  RopeConfig rope;
};

/// model_type (or architectures) says which of the four; where they differ, see the table in the source. Throws
/// InputError "file:line:column: ..." on a missing key, a value out of range, heads that do not divide, or a member
/// that would change the architecture in a way the model does not have.
LlamaConfig parse_llama_config(const Value& json);

}  // namespace tessera::models
