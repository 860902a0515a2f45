#pragma once
/// \file
/// Common functions of the families' readers. All throw InputError "file:line:column: ..." for a missing key, a value
/// out of range, and sizes that do not divide.

#include <tessera/architectures/architecture.h>
#include <tessera/architectures/config_value.h>
#include <tessera/architectures/families.h>
#include <tessera/architectures/tensor_names.h>
#include <tessera/base/error.h>

#include <cstdint>
#include <vector>

namespace tessera::architectures {

/// Defaults of optional config.json values, by family.
struct SizeDefaults {
  std::int64_t key_heads = 0;  ///< 0: same as heads
  std::int64_t head_size = 0;  ///< 0: hidden / heads
  const char* head_size_key = "head_dim";
  const char* inner_key = "intermediate_size";
  bool tied = false;
};

/// Reads sizes, ranges and attention dropout, which all decoders have under the same names; everything else keeps
/// Llama's value. The rotation is left to the caller (parse_rope).
void read_sizes(const Value& json, ModelSpec& spec, const SizeDefaults& defaults = {});
/// Reads attention_bias (of q, k, v and o) and mlp_bias.
void read_biases(const Value& json, ModelSpec& spec);
/// Throws unless `by` divides `whole`; n and d are the values of these keys.
void check_divides(const Value& json, const char* whole, std::int64_t n, const char* by, std::int64_t d);
/// Reads the number of layers, at most 65536.
std::int64_t read_layers(const Value& json, const char* key);

/// Reads the activation under `key`: gelu_new, gelu_pytorch_tanh, gelu_fast (tanh approximation); gelu (exact); relu;
/// relu2; silu.
Activation read_activation(const Value& json, const char* key, Activation otherwise);
/// Throws unless pretraining_tp is 1: computing matrices slice by slice is not supported.
void refuse_slices(const Value& json);
/// Throws if `key` is true; `why` describes what is not supported.
void refuse_flag(const Value& json, const char* key, const char* why);

/// The window of each layer from `types`, config.json's layer_types: `window` for sliding_attention.
std::vector<std::int64_t> windows_of(const Value& types, std::int64_t layers, std::int64_t window);
/// Like the above with config.json's layer_types if present; otherwise every `period`-th layer sees all tokens and the
/// others `window`.
std::vector<std::int64_t> windows_in_turn(const Value& json, std::int64_t layers, std::int64_t window,
                                          std::int64_t period);
/// Applies sliding_window, if given, to all layers.
void read_one_window(const Value& json, ModelSpec& spec);
/// Sets the rotations of layers without and with a window.
void rotate_by_window(ModelSpec& spec, LayerRope without, LayerRope with);

/// Reads DeepSeek's members: q_lora_rank, kv_lora_rank, qk_nope_head_dim, v_head_dim, rope_interleave; the rotated part
/// is spec.rope's. The head size becomes the larger of key and value.
void read_latent(const Value& json, ModelSpec& spec);
/// Reads experts in all layers, with the keys of Mixtral, Qwen and OLMoE: `count_key`, num_experts_per_tok,
/// norm_topk_prob, output_router_logits with router_aux_loss_coef.
struct ExpertDefaults {
  const char* count_key = "num_experts";
  std::int64_t count = 0, top_k = 0;
  bool normalize = false;
  double auxiliary = 0.001;
};
Experts read_experts(const Value& json, const ModelSpec& spec, const ExpertDefaults& defaults);
/// Checks n_group groups of experts, of which a token uses topk_group.
void check_groups(const Value& json, const Experts& experts);

}  // namespace tessera::architectures
