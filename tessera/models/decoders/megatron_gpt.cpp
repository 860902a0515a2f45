#include <tessera/models/decoders/megatron_gpt.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

#include <algorithm>
#include <initializer_list>
#include <string>

namespace tessera::models {
using config::check_part, config::flag, config::given, config::positive, config::positive_or, config::positive_real,
    config::probability, config::refuse_other, config::sparse_layers;
namespace {

/// The word that `key` has, one of `words`; the first where it is not given.
std::string word(const Value& json, const char* key, std::initializer_list<const char*> words) {
  const Value* v = given(json, key);
  if (!v) return *words.begin();
  std::string list;
  for (const char* one : words) {
    if (v->as_string() == one) return one;
    list += concat(list.empty() ? "" : ", ", one);
  }
  throw InputError(
      concat(v->where().str(), ": ", key, " \"", v->as_string(), "\" is not supported; one of ", list, " is"));
}

MoeConfig read_experts(const Value& json, const LlamaConfig& c) {
  MoeConfig moe;
  moe.router.experts = positive(json, "num_experts");
  moe.router.top_k = positive_or(json, "num_experts_per_tok", 2);
  check_part(json, "num_experts_per_tok", moe.router.top_k, moe.router.experts, "experts");
  const std::string scoring = word(json, "router_scoring", {"softmax_of_chosen", "softmax", "sigmoid"});
  moe.router.scoring = scoring == "sigmoid" ? nn::RouterOptions::Scoring::sigmoid : nn::RouterOptions::Scoring::softmax;
  moe.router.softmax_after_top_k = scoring == "softmax_of_chosen";
  moe.router.normalize = flag(json, "norm_topk_prob", false);
  moe.router.scale = positive_real(json, "routed_scaling_factor", 1);
  moe.router.groups = positive_or(json, "n_group", 1);
  moe.router.top_groups = positive_or(json, "topk_group", 1);
  moe.router.group_best = std::max<std::int64_t>(1, moe.router.top_k / moe.router.top_groups);
  if (moe.router.experts % moe.router.groups != 0)
    throw InputError(concat(json.at("n_group").where().str(), ": ", moe.router.experts, " experts in n_group ",
                            moe.router.groups, " equal groups"));
  const std::int64_t each = moe.router.experts / moe.router.groups;
  check_part(json, "topk_group", moe.router.top_groups, moe.router.groups, "groups");
  check_part(json, "num_experts_per_tok", moe.router.top_k, moe.router.top_groups * each,
             "experts in the groups that a token may choose");
  moe.router.sinkhorn = given(json, "router_balancing") != nullptr;
  if (moe.router.sinkhorn) word(json, "router_balancing", {"sinkhorn"});
  moe.jitter = probability(json, "router_jitter_noise", 0);
  moe.selection_bias = flag(json, "router_selection_bias", false);
  moe.intermediate = positive_or(json, "moe_intermediate_size", c.intermediate);
  moe.gated = c.gated;
  moe.activation = c.activation;
  if (given(json, "shared_expert_intermediate_size"))
    moe.shared_intermediate = positive(json, "shared_expert_intermediate_size");
  moe.shared_name = "shared_expert";
  moe.shared_gate = flag(json, "shared_expert_gate", false);
  moe.sparse = sparse_layers(json, c.layers);
  moe.balance = {.experts = moe.router.experts, .top_k = moe.router.top_k};
  if (moe.shared_gate && moe.shared_intermediate == 0)
    throw InputError(concat(json.at("shared_expert_gate").where().str(),
                            ": shared_expert_gate needs shared_expert_intermediate_size"));
  if (c.mlp_bias)
    throw InputError(concat(json.at("num_experts").where().str(),
                            ": num_experts beside add_bias_linear true: experts have no biases here"));
  return moe;
}

/// Heads have a rotated part of their own, whatever positions are added to the embeddings.
void read_latents(const Value& json, LlamaConfig& c, bool normed) {
  const Value& where = json.at("kv_lora_rank");
  if (c.key_heads != c.heads)
    throw InputError(concat(where.where().str(), ": kv_lora_rank beside num_key_value_heads ", c.key_heads, " of ",
                            c.heads, " heads: in latent attention every head has keys of its own"));
  if (normed && (c.norms.kind != NormKind::rms || c.norms.from_one))
    throw InputError(concat(where.where().str(),
                            ": kv_lora_rank beside qk_layernorm needs normalization RMSNorm, without "
                            "layernorm_zero_centered_gamma: latents have no other norms here"));
  c.rope = parse_rope(json, positive_or(json, "qk_rope_head_dim", 64), c.max_positions);
  c.latent = read_latent(json, c.rope);
  c.latent->normed = normed;
  c.latent->norm_eps = c.norms.eps;
  c.query_bias = false;
}

LinearConfig read_linear(const Value& json, const Value& types, std::int64_t layers) {
  LinearConfig linear;
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

}  // namespace

LlamaConfig parse_megatron_gpt_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {.tied = true});
  const bool layer_norm = word(json, "normalization", {"LayerNorm", "RMSNorm"}) == "LayerNorm";
  const bool from_one = flag(json, "layernorm_zero_centered_gamma", false);
  c.norms = {.kind = layer_norm ? NormKind::layer : NormKind::rms,
             .bias = layer_norm,
             .from_one = from_one,
             .begins_at_zero = from_one,
             .eps = positive_real(json, "norm_epsilon", 1e-5)};
  c.gated = flag(json, "gated_linear_unit", false);
  if (c.gated)
    refuse_other(json, "hidden_act", {"silu"});
  else
    c.activation = read_activation(json, "hidden_act", Activation::gelu_erf);
  c.output_bias = c.mlp_bias = flag(json, "add_bias_linear", true);
  c.query_bias = c.mlp_bias || flag(json, "add_qkv_bias", false);
  const bool latent = given(json, "kv_lora_rank") != nullptr;
  const bool norms_inside = flag(json, "qk_layernorm", false);
  c.query_key_norm = norms_inside && !latent;
  const double hidden = probability(json, "hidden_dropout", 0.1);
  c.drops = {.embedding = hidden, .attention = hidden, .mlp = hidden};
  c.attention_dropout = probability(json, "attention_dropout", 0.1);
  c.learned_positions = word(json, "position_embedding_type", {"learned_absolute", "rope"}) == "learned_absolute";
  if (latent) {
    read_latents(json, c, norms_inside);
  } else if (c.learned_positions) {
    std::ranges::fill(c.rotations, LayerRope::none);
    c.rope = {.dim = c.head_size, .max_positions = c.max_positions};
  } else {
    c.rope = parse_rope(json, c.head_size, c.max_positions, {.part = 1});
  }
  if (const Value* types = given(json, "layer_types")) c.linear = read_linear(json, *types, c.layers);
  c.output_gate = flag(json, "attn_output_gate", false);
  if (c.output_gate && latent)
    throw InputError(concat(json.at("attn_output_gate").where().str(),
                            ": attn_output_gate beside kv_lora_rank: latent attention has no gates here"));
  if (given(json, "num_experts")) c.moe = read_experts(json, c);
  read_depths(json, c);
  return c;
}

}  // namespace tessera::models
