// DeepSeek-V3 (DeepSeek-AI 2024; transformers/models/deepseek_v3): latent attention; after the first dense layers,
// experts in groups.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

Experts read_routed(const Value& json) {
  Experts e;
  e.count = positive_or(json, "n_routed_experts", 256);
  e.top_k = positive_or(json, "num_experts_per_tok", 8);
  e.scoring = Experts::Scoring::sigmoid;
  e.normalize = flag(json, "norm_topk_prob", true);
  e.groups = positive_or(json, "n_group", 8);
  e.top_groups = positive_or(json, "topk_group", 4);
  e.scale = positive_real(json, "routed_scaling_factor", 2.5);
  e.selection_bias = true;
  e.inner = positive_or(json, "moe_intermediate_size", 2048);
  e.shared_inner = e.inner * positive_or(json, "n_shared_experts", 1);
  e.shared_name = "shared_experts";
  check_groups(json, e);
  if (const std::int64_t each = e.count / e.groups; e.groups > 1 && each < e.group_best)
    throw InputError(concat((given(json, "n_group") ? *given(json, "n_group") : json).where().str(), ": groups of ",
                            each, " expert; a group is scored by its two best experts, so it needs at least two"));
  return e;
}

void read_deepseek(const Value& json, ModelSpec& s) {
  read_sizes(json, s, {.head_size = 64, .head_size_key = "qk_rope_head_dim"});
  refuse_other(json, "hidden_act", {"silu"});
  s.query_bias = s.output_bias = flag(json, "attention_bias", false);
  refuse_slices(json);
  s.rope = parse_rope(json, s.head_size, s.positions);
  read_latent(json, s);
  if (s.key_heads != s.heads)
    throw InputError(concat(json.at("num_key_value_heads").where().str(), ": num_key_value_heads ", s.key_heads, " of ",
                            s.heads, " heads: in latent attention every head has its own keys"));
  s.experts = read_routed(json);
  const Value* dense = given(json, "first_k_dense_replace");
  const std::int64_t first = dense ? dense->as_int() : 3;
  for (std::int64_t i = 0; i < s.layers; ++i) s.sparse.push_back(i >= first);
}

}  // namespace

/// In its small preset every token uses 2 of 4 experts, each a quarter as wide as the dense layer.
const Architecture deepseek_v3 = {
    .model_type = "deepseek_v3",
    .architecture = "DeepseekV3ForCausalLM",
    .hf_block = "DeepseekV3DecoderLayer",
    .read = read_deepseek,
    .tensor_name = llama_tensor_name,
    .predicts = true,
    .preset = R"({"attention_bias": false, "head_dim": 32, "first_k_dense_replace": 1, "kv_lora_rank": 64,
                  "moe_intermediate_size": 172, "n_group": 1, "n_routed_experts": 4, "n_shared_experts": 1,
                  "norm_topk_prob": true, "num_experts_per_tok": 2, "num_key_value_heads": 4, "q_lora_rank": null,
                  "qk_nope_head_dim": 32, "qk_rope_head_dim": 32, "rope_interleave": true,
                  "routed_scaling_factor": 1.0, "topk_group": 1, "v_head_dim": 64})"};

}  // namespace tessera::architectures
