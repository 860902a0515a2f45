#pragma once
/// \file
/// The members of a Llama-family config.json that the model uses (transformers/models/{llama,mistral,qwen2,qwen3,
/// mixtral,qwen2_moe,qwen3_moe,olmoe}/configuration_*.py, spellings of transformers 4 and 5).

#include <tessera/base/value.h>
#include <tessera/models/moe_config.h>
#include <tessera/models/rope.h>
#include <cstdint>
#include <optional>
#include <vector>

namespace tessera::models {

/// Sizes of multi-head latent attention (latent_attention.h).
struct LatentConfig {
  std::int64_t query_rank = 0, key_rank = 0;       ///< sizes of the latents; query_rank 0: queries have none
  std::int64_t plain = 0, rotated = 0, value = 0;  ///< parts of a head: not rotated, rotated, value
  bool interleaved = true;                         ///< rotated numbers come in pairs, not in halves
  double scale = 1;                                ///< factor of scores

  std::int64_t mean_head() const { return (plain + rotated + value) / 2; }
  std::int64_t widest_head() const { return plain + rotated > value ? plain + rotated : value; }
  /// Elements of a layer's matrices.
  std::int64_t attention_elements(std::int64_t hidden, std::int64_t heads) const {
    const std::int64_t queries = heads * (plain + rotated);
    return (query_rank > 0 ? query_rank * (hidden + queries) : hidden * queries) + hidden * (key_rank + rotated) +
           key_rank * heads * (plain + value) + heads * value * hidden;
  }
};

struct LlamaConfig {
  std::int64_t layers, hidden, heads, key_heads, head_size, intermediate, vocab_size, max_positions;
  double rms_norm_eps = 1e-6, initializer_range = 0.02, attention_dropout = 0;
  bool query_bias = false;   ///< biases of q_proj, k_proj, v_proj
  bool output_bias = false;  ///< bias of o_proj
  bool mlp_bias = false;
  bool query_key_norm = false;     ///< RMS norms of each head of q and k (Qwen3)
  bool norm_of_all_heads = false;  ///< over all heads at once instead (OLMoE)
  double clip_qkv = 0;             ///< bound of the absolute values of q, k and v; 0: none (OLMoE)
  bool tie_word_embeddings = false;
  std::vector<std::int64_t> windows;  ///< per layer: tokens that one sees; 0: all before it
  RopeConfig rope;
  std::optional<MoeConfig> moe;
  std::optional<LatentConfig> latent;
  bool mixtral_names = false;  ///< the sparse layers' module is block_sparse_moe, not mlp

  bool sparse(std::int64_t layer) const { return moe && moe->sparse[static_cast<std::size_t>(layer)]; }
  /// Numbers between the products of a layer's MLPs that a token meets.
  std::int64_t inner(std::int64_t layer) const {
    return sparse(layer) ? moe->router.top_k * moe->intermediate + moe->shared_intermediate : intermediate;
  }
};

/// model_type (or architectures) says which of them; where they differ, see the table in the source. Throws
/// InputError "file:line:column: ..." on a missing key, a value out of range, heads that do not divide, or a member
/// that would change the architecture in a way the model does not have.
LlamaConfig parse_llama_config(const Value& json);

}  // namespace tessera::models
