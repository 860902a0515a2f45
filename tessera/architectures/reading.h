#pragma once
/// \file
/// What the readers of families share. All throw InputError "file:line:column: ..." for a missing key, a value out of
/// range, and sizes that do not divide.

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/config_value.h>
#include <tessera/architectures/families.h>
#include <tessera/architectures/tensor_names.h>
#include <tessera/base/error.h>

#include <cstdint>
#include <vector>

namespace tessera::architectures {

/// Values that a config.json may leave out, by family.
struct SizeDefaults {
  std::int64_t key_heads = 0;  ///< 0: as many as heads
  std::int64_t head_size = 0;  ///< 0: hidden / heads
  const char* head_size_key = "head_dim";
  const char* inner_key = "intermediate_size";
  bool tied = false;
};

/// The sizes, the ranges and the dropout of attention that decoders have under the same names; everything else stays as
/// Llama has it. The rotation is left to the caller (parse_rope).
void read_sizes(const Value& json, ModelSpec& spec, const SizeDefaults& defaults = {});
/// attention_bias (of q, k, v and o) and mlp_bias.
void read_biases(const Value& json, ModelSpec& spec);
/// `by` must divide `whole`; n and d are their values.
void check_divides(const Value& json, const char* whole, std::int64_t n, const char* by, std::int64_t d);
/// The layers may be at most 65536.
std::int64_t read_layers(const Value& json, const char* key);

/// The activation that `key` names: gelu_new, gelu_pytorch_tanh, gelu_fast (by tanh); gelu (exact); relu; relu2; silu.
Activation read_activation(const Value& json, const char* key, Activation otherwise);
/// Throws where pretraining_tp is another number than 1: slices of matrices are not computed one by one.
void refuse_slices(const Value& json);
/// Throws where `key` is true: `why` says what is not supported.
void refuse_flag(const Value& json, const char* key, const char* why);

/// The window of each layer by `types`, config.json's layer_types: `window` where it says sliding_attention.
std::vector<std::int64_t> windows_of(const Value& types, std::int64_t layers, std::int64_t window);
/// The same by config.json's layer_types where it has them; else every `period`-th layer sees all, the others `window`.
std::vector<std::int64_t> windows_in_turn(const Value& json, std::int64_t layers, std::int64_t window,
                                          std::int64_t period);
/// sliding_window for all layers, where it is given.
void read_one_window(const Value& json, ModelSpec& spec);
/// Layers without a window are given this rotation; those with one the other.
void rotate_by_window(ModelSpec& spec, LayerRope without, LayerRope with);

/// DeepSeek's members: q_lora_rank, kv_lora_rank, qk_nope_head_dim, v_head_dim, rope_interleave; the rotated part is
/// spec.rope's. Heads become as wide as the wider of key and value.
void read_latent(const Value& json, ModelSpec& spec);
/// Experts in all layers, as many and as wide as Mixtral, Qwen and OLMoE say it: `count_key`, num_experts_per_tok,
/// norm_topk_prob, output_router_logits with router_aux_loss_coef.
struct ExpertDefaults {
  const char* count_key = "num_experts";
  std::int64_t count = 0, top_k = 0;
  bool normalize = false;
  double auxiliary = 0.001;
};
Experts read_experts(const Value& json, const ModelSpec& spec, const ExpertDefaults& defaults);
/// Experts in n_group groups, of which a token chooses topk_group.
void check_groups(const Value& json, const Experts& experts);

}  // namespace tessera::architectures
