// The GPT that Megatron-LM composes from switches (megatron/training/arguments.py), for combinations that no
// transformers family has: ungated experts, RMS norms with learned positions, gated MLPs with dropout of hidden states.
// A config.json of model_type "megatron_gpt" is Tessera's own: transformers cannot read it.

#include <tessera/architectures/reading.h>

#include <algorithm>
#include <initializer_list>
#include <string>

namespace tessera::architectures {
namespace {

/// Returns the value of `key`, one of `words`; the first word by default.
std::string word(const Value& json, const char* key, std::initializer_list<const char*> words) {
  const Value* v = given(json, key);
  if (!v) return *words.begin();
  std::string list;
  for (const char* one : words) {
    if (v->as_string() == one) return one;
    list += concat(list.empty() ? "" : ", ", one);
  }
  throw InputError(
      concat(v->where().str(), ": ", key, " \"", v->as_string(), "\" is not supported; supported: ", list, ""));
}

Experts read_switched_experts(const Value& json, const ModelSpec& s) {
  Experts e;
  e.count = positive(json, "num_experts");
  e.top_k = positive_or(json, "num_experts_per_tok", 2);
  check_part(json, "num_experts_per_tok", e.top_k, e.count, "experts");
  const std::string scoring = word(json, "router_scoring", {"softmax_of_chosen", "softmax", "sigmoid"});
  e.scoring = scoring == "sigmoid" ? Experts::Scoring::sigmoid : Experts::Scoring::softmax;
  e.softmax_after_top_k = scoring == "softmax_of_chosen";
  e.normalize = flag(json, "norm_topk_prob", false);
  e.scale = positive_real(json, "routed_scaling_factor", 1);
  e.groups = positive_or(json, "n_group", 1);
  e.top_groups = positive_or(json, "topk_group", 1);
  e.group_best = std::max<std::int64_t>(1, e.top_k / e.top_groups);
  check_groups(json, e);
  e.sinkhorn = given(json, "router_balancing") != nullptr;
  if (e.sinkhorn) word(json, "router_balancing", {"sinkhorn"});
  e.jitter = probability(json, "router_jitter_noise", 0);
  e.selection_bias = flag(json, "router_selection_bias", false);
  e.inner = positive_or(json, "moe_intermediate_size", s.inner);
  if (given(json, "shared_expert_intermediate_size"))
    e.shared_inner = positive(json, "shared_expert_intermediate_size");
  e.shared_gate = flag(json, "shared_expert_gate", false);
  if (e.shared_gate && e.shared_inner == 0)
    throw InputError(concat(json.at("shared_expert_gate").where().str(),
                            ": shared_expert_gate needs shared_expert_intermediate_size"));
  if (s.mlp_bias)
    throw InputError(concat(json.at("num_experts").where().str(),
                            ": num_experts with add_bias_linear true: experts with biases are not implemented"));
  return e;
}

/// Heads have their own rotated part, regardless of the positions added to the embeddings.
void read_latents(const Value& json, ModelSpec& s, bool normed) {
  const Value& where = json.at("kv_lora_rank");
  if (s.key_heads != s.heads)
    throw InputError(concat(where.where().str(), ": kv_lora_rank with num_key_value_heads ", s.key_heads, " of ",
                            s.heads, " heads: in latent attention every head has its own keys"));
  if (normed && (s.norms.kind != NormKind::rms || s.norms.from_one))
    throw InputError(concat(where.where().str(),
                            ": kv_lora_rank with qk_layernorm needs normalization RMSNorm, without "
                            "layernorm_zero_centered_gamma: other norms of latents are not implemented"));
  s.rope = parse_rope(json, positive_or(json, "qk_rope_head_dim", 64), s.positions);
  read_latent(json, s);
  s.latent->normed = normed;
  s.latent->norm_eps = s.norms.eps;
  s.query_bias = false;
}

Linear read_linear(const Value& json, const Value& types, std::int64_t layers) {
  Linear linear;
  linear.key_heads = positive_or(json, "linear_num_key_heads", 16);
  linear.value_heads = positive_or(json, "linear_num_value_heads", 32);
  linear.key_size = positive_or(json, "linear_key_head_dim", 128);
  linear.value_size = positive_or(json, "linear_value_head_dim", 128);
  linear.kernel = positive_or(json, "linear_conv_kernel_dim", 4);
  if (linear.value_heads % linear.key_heads != 0)
    throw InputError(concat(types.where().str(), ": linear_num_value_heads ", linear.value_heads,
                            " is not a multiple of linear_num_key_heads ", linear.key_heads));
  if (static_cast<std::int64_t>(types.items().size()) != layers)
    throw InputError(
        concat(types.where().str(), ": layer_types has ", types.items().size(), " entries for ", layers, " layers"));
  for (const Value& type : types.items()) {
    linear.layers.push_back(type.as_string() == "linear_attention");
    if (!linear.layers.back() && type.as_string() != "full_attention")
      throw InputError(concat(type.where().str(), ": layer type \"", type.as_string(),
                              "\" is not supported; full_attention and linear_attention are"));
  }
  return linear;
}

/// Members in addition to the ones that read_sizes() reads (defaults are Megatron's):
///   position_embedding_type   "learned_absolute", or "rope" with rope_theta, rope_scaling, partial_rotary_factor
///   normalization             "LayerNorm" or "RMSNorm"; norm_epsilon; layernorm_zero_centered_gamma: factor 1 + weight
///   hidden_act                of an MLP without a gate (activation.h); gated_linear_unit: silu(gate x) * (up x)
///   add_bias_linear           all linear maps of blocks have biases; add_qkv_bias: only those of q, k and v
///   qk_layernorm              norms of the heads of q and k, or of the latents
///   kv_lora_rank (null: none) multi-head latent attention, with a bias only in its output map; q_lora_rank
///                             (null: queries have no latent), qk_nope_head_dim, qk_rope_head_dim, v_head_dim: a part
///                             of each head is rotated, by rope_theta and rope_scaling, even with learned positions
///   layer_types (null: all    "linear_attention": the gated delta rule (models/decoders) with linear_num_key_heads,
///   "full_attention")         linear_num_value_heads, linear_key_head_dim, linear_value_head_dim,
///                             linear_conv_kernel_dim; no biases
///   attn_output_gate          each head's output in full attention is multiplied by the sigmoid of a gate
///   attention_dropout, hidden_dropout (of embeddings, and of the outputs of attention and MLP), tie_word_embeddings
///   num_experts (null: none)  num_experts_per_tok, moe_intermediate_size, mlp_only_layers, decoder_sparse_step,
///                             shared_expert_intermediate_size (null: none), shared_expert_gate, router_jitter_noise
///   router_scoring            "softmax_of_chosen" (softmax over the chosen logits), "softmax" (over all logits),
///                             "sigmoid"; norm_topk_prob: weights are normalized to sum 1; routed_scaling_factor;
///                             n_group, topk_group: groups of experts, each scored by the sum of its
///                             num_experts_per_tok / topk_group best experts; router_selection_bias: a bias for the
///                             choice, as in DeepSeek-V3
///   router_balancing          "sinkhorn", or null: experts are chosen by the scores
///   mtp_num_layers (0)        multi-token prediction blocks (models/decoders), with rotary positions
void read_megatron_gpt(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.tied = true});
  const bool layer_norm = word(json, "normalization", {"LayerNorm", "RMSNorm"}) == "LayerNorm";
  const bool from_one = flag(json, "layernorm_zero_centered_gamma", false);
  s.norms = {.kind = layer_norm ? NormKind::layer : NormKind::rms,
             .bias = layer_norm,
             .from_one = from_one,
             .begins_at_zero = from_one,
             .eps = positive_real(json, "norm_epsilon", 1e-5)};
  s.gated = flag(json, "gated_linear_unit", false);
  if (s.gated)
    refuse_other(json, "hidden_act", {"silu"});
  else
    s.activation = read_activation(json, "hidden_act", Activation::gelu_erf);
  s.output_bias = s.mlp_bias = flag(json, "add_bias_linear", true);
  s.query_bias = s.mlp_bias || flag(json, "add_qkv_bias", false);
  const bool latent = given(json, "kv_lora_rank") != nullptr;
  const bool norms_inside = flag(json, "qk_layernorm", false);
  s.head_norm = norms_inside && !latent;
  const double hidden = probability(json, "hidden_dropout", 0.1);
  s.drops = {.embedding = hidden, .attention = hidden, .mlp = hidden};
  s.attention_dropout = probability(json, "attention_dropout", 0.1);
  const bool learned = word(json, "position_embedding_type", {"learned_absolute", "rope"}) == "learned_absolute";
  if (learned) s.position_rows = s.positions;
  if (latent) {
    read_latents(json, s, norms_inside);
  } else if (learned) {
    s.rotations.assign(static_cast<std::size_t>(s.layers), LayerRope::none);
    s.rope = {.dim = s.head_size, .max_positions = s.positions};
  } else {
    s.rope = parse_rope(json, s.head_size, s.positions, {.part = 1});
  }
  if (const Value* types = given(json, "layer_types")) s.linear = read_linear(json, *types, s.layers);
  s.output_gate = flag(json, "attn_output_gate", false);
  if (s.output_gate && latent)
    throw InputError(concat(json.at("attn_output_gate").where().str(),
                            ": attn_output_gate with kv_lora_rank: latent attention with gates is not implemented"));
  if (!given(json, "num_experts")) return;
  s.experts = read_switched_experts(json, s);
  s.sparse = sparse_layers(json, s.layers);
}

}  // namespace

const Architecture megatron_gpt = {
    .model_type = "megatron_gpt",
    .architecture = "MegatronGptForCausalLM",
    .hf_block = "MegatronGptDecoderLayer",
    .read = read_megatron_gpt,
    .tensor_name = tied_tensor_name,
    .predicts = true,
    .preset = R"({"add_bias_linear": true, "add_qkv_bias": true, "attn_output_gate": false, "decoder_sparse_step": 1,
                  "gated_linear_unit": false, "hidden_act": "gelu", "hidden_dropout": 0.0, "intermediate_size": 1024,
                  "kv_lora_rank": null, "layer_types": null, "layernorm_zero_centered_gamma": false,
                  "linear_conv_kernel_dim": null, "linear_key_head_dim": null, "linear_num_key_heads": null,
                  "linear_num_value_heads": null, "linear_value_head_dim": null, "mlp_only_layers": null,
                  "moe_intermediate_size": null, "n_group": 1, "norm_epsilon": 1e-5, "norm_topk_prob": false,
                  "normalization": "LayerNorm", "num_experts": null, "num_experts_per_tok": 2,
                  "partial_rotary_factor": 1.0, "position_embedding_type": "learned_absolute", "q_lora_rank": null,
                  "qk_layernorm": false, "qk_nope_head_dim": null, "qk_rope_head_dim": null, "rope_scaling": null,
                  "router_balancing": null, "router_jitter_noise": 0.0, "router_scoring": "softmax_of_chosen",
                  "router_selection_bias": false, "routed_scaling_factor": 1.0, "shared_expert_gate": false,
                  "shared_expert_intermediate_size": null, "topk_group": 1, "v_head_dim": null})"};

}  // namespace tessera::architectures
