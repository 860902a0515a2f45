#pragma once
/// \file
/// What a decoder of the Llama family is made of, in values: the members of a config.json that the model uses
/// (transformers/models/NAME/configuration_NAME.py, spellings of transformers 4 and 5). A family that differs reads
/// its own (decoders/) and begins with read_sizes().

#include <tessera/base/value.h>
#include <tessera/layout/decoder_names.h>
#include <tessera/models/activation.h>
#include <tessera/models/decoders/mup.h>
#include <tessera/models/moe_config.h>
#include <tessera/models/norm.h>
#include <tessera/models/rope.h>
#include <tessera/nn/swiglu.h>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace tessera::models {

/// Sizes of multi-head latent attention (latent_attention.h).
struct LatentConfig {
  std::int64_t query_rank = 0, key_rank = 0;       ///< sizes of the latents; query_rank 0: queries have none
  std::int64_t plain = 0, rotated = 0, value = 0;  ///< parts of a head: not rotated, rotated, value
  bool interleaved = true;                         ///< rotated numbers come in pairs, not in halves
  bool normed = true;                              ///< the latents pass through RMS norms
  double norm_eps = 1e-6;                          ///< those norms' epsilon; DeepSeek's, whatever rms_norm_eps says
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

/// Sizes of linear attention (decoders/linear_attention.h), and which layers have it.
struct LinearConfig {
  std::int64_t key_heads = 0, value_heads = 0, key_size = 0, value_size = 0;
  std::int64_t kernel = 0;   ///< tokens that a convolution sees
  std::vector<bool> layers;  ///< the others have ordinary attention

  std::int64_t keys() const { return key_heads * key_size; }
  std::int64_t values() const { return value_heads * value_size; }
  std::int64_t convolved() const { return 2 * keys() + values(); }  ///< channels of q, k and v
  std::int64_t in_features() const { return convolved() + values() + 2 * value_heads; }
  /// Elements of a layer's matrices, and products with its memories' numbers that a token costs.
  std::int64_t matrix_elements(std::int64_t hidden) const {
    return hidden * (in_features() + values()) + 3 * value_heads * key_size * value_size;
  }
};

/// Factors of activations.
struct Multipliers {
  double embedding = 1;
  double residual = 1;  ///< multiplies what attention and MLP give
  double logits = 1;
};

/// What scores and logits are soft-capped at (nn/softcap.h); 0: they are not.
struct SoftCaps {
  double scores = 0, logits = 0;
};

/// How a block adds what attention and the MLP give.
enum class Residual : std::uint8_t {
  serial,       ///< the MLP reads what attention has added to
  parallel,     ///< both read the block's input, through norms of their own (GPT-NeoX)
  parallel_one  ///< through one norm (Cohere)
};

/// Shares that are dropped in training.
struct Drops {
  double embedding = 0, attention = 0, mlp = 0;  ///< the embeddings, what attention and the MLP give
};

/// Which rotation a layer's queries and keys have.
enum class LayerRope : std::uint8_t { usual, local, none };

struct LlamaConfig {
  /// Blocks behind the last one that predict further tokens (decoders/prediction.h); what is given per layer has
  /// their entries, too.
  std::int64_t depths = 0;
  std::int64_t layers, hidden, heads, key_heads, head_size, intermediate, vocab_size, max_positions;
  double initializer_range = 0.02, attention_dropout = 0;
  Drops drops;
  double score_scale = 1;    ///< factor of q k^T
  bool query_bias = false;   ///< biases of q_proj, k_proj, v_proj
  bool output_bias = false;  ///< bias of o_proj
  bool mlp_bias = false, head_bias = false;
  bool gated = true;  ///< false: the MLP is down(activation(up(x)))
  nn::GateKind gate = nn::GateKind::silu;
  Activation activation = Activation::gelu_tanh;
  Residual residual = Residual::serial;
  NormForm norms;
  Multipliers multipliers;
  SoftCaps caps;
  bool query_key_norm = false;     ///< RMS norms of each head of q and k (Qwen3)
  bool norm_of_all_heads = false;  ///< over all heads at once instead (OLMoE)
  bool output_gate = false;        ///< q_proj gives a gate of what each head reads, too
  double clip_qkv = 0;             ///< bound of the absolute values of q, k and v; 0: none (OLMoE)
  bool tie_word_embeddings = false;
  bool packed = false;           ///< one qkv_proj, one gate_up_proj (Phi-3)
  bool query_key_value = false;  ///< one matrix, in which each head has its q, k and v beside one another (GPT-NeoX)
  bool interleaved = false;      ///< the two numbers of a rotated pair are neighbours (Cohere)
  std::int64_t position_offset = 0;   ///< in the learned table of positions, rows before the first one's
  bool learned_positions = false;     ///< a table of them is added to the embeddings (OPT)
  std::vector<std::int64_t> windows;  ///< per layer: tokens that one sees; 0: all before it
  std::vector<LayerRope> rotations;   ///< per layer
  RopeConfig rope;
  std::optional<RopeConfig> local_rope;  ///< has the layers that are `local`
  std::optional<MoeConfig> moe;
  std::optional<LatentConfig> latent;
  std::optional<LinearConfig> linear;
  std::optional<Mup> mup;
  layout::DecoderNames names;

  bool linear_layer(std::int64_t layer) const { return linear && linear->layers[static_cast<std::size_t>(layer)]; }
  bool sparse(std::int64_t layer) const { return moe && moe->sparse[static_cast<std::size_t>(layer)]; }
  /// Numbers between the products of a layer's MLPs that a token meets.
  std::int64_t inner(std::int64_t layer) const {
    return sparse(layer) ? moe->router.top_k * moe->intermediate + moe->shared_intermediate : intermediate;
  }
};

/// What a config.json may leave out, by family.
struct SizeDefaults {
  std::int64_t key_heads = 0;  ///< 0: as many as heads
  std::int64_t head_size = 0;  ///< 0: hidden / heads
  const char* head_size_key = "head_dim";
  bool tied = false;
};

/// The sizes, the ranges and the dropout of attention that all of them have under the same names; everything else as
/// Llama has it, without windows, the rotation left to the caller (parse_rope). Throws InputError "file:line:column:
/// ..." on a missing key, a value out of range, or heads that do not divide.
LlamaConfig read_sizes(const Value& json, const SizeDefaults& defaults);

/// The same with what config.json's use_mup (decoders/mup.h) says of scores, embeddings and logits. Throws InputError
/// for a family that has factors of its own there, or other attention.
LlamaConfig with_mup(const Value& json, LlamaConfig config);

/// config.json's mtp_num_layers: so many blocks like the last one, which predict further tokens
/// (config/core/prediction_depths.h).
void read_depths(const Value& json, LlamaConfig& config);

/// DeepSeek's members: q_lora_rank, kv_lora_rank, qk_nope_head_dim, v_head_dim, rope_interleave; `rope`: of the part
/// of a head that is rotated.
LatentConfig read_latent(const Value& json, const RopeConfig& rope);

/// The window of each layer by `types`, config.json's layer_types: `window` where it says sliding_attention.
std::vector<std::int64_t> windows_of(const Value& types, std::int64_t layers, std::int64_t window);
/// The same by config.json's layer_types where it has them; else every `period`-th layer sees all, the others `window`.
std::vector<std::int64_t> windows_in_turn(const Value& json, std::int64_t layers, std::int64_t window,
                                          std::int64_t period);

/// Llama, Mistral, Qwen, OLMoE, DeepSeek: model_type (or architectures) says which; where they differ, see the source.
/// Throws InputError "file:line:column: ..." on a missing key, a value out of range, heads that do not divide, or a
/// member that would change the architecture in a way the model does not have.
LlamaConfig parse_llama_config(const Value& json);

}  // namespace tessera::models
