#include <tessera/models/decoders/gpt_neox.h>

#include <ATen/ATen.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>
#include <tessera/nn/nn.h>

namespace tessera::models {
using config::flag, config::positive_real, config::probability;

LlamaConfig parse_gpt_neox_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  c.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  c.gated = false;
  c.activation = read_activation(json, "hidden_act", Activation::gelu_erf);
  c.residual = flag(json, "use_parallel_residual", true) ? Residual::parallel : Residual::serial;
  c.query_bias = c.output_bias = flag(json, "attention_bias", true);
  c.mlp_bias = true;
  c.query_key_value = true;
  const double hidden = probability(json, "hidden_dropout", 0);
  c.drops = {.embedding = hidden, .attention = hidden, .mlp = hidden};
  c.names = layout::gpt_neox_names;
  c.rope = parse_rope(json, c.head_size, c.max_positions,
                      {.part = 0.25, .theta_key = "rotary_emb_base", .part_key = "rotary_pct"});
  if (c.key_heads != c.heads)
    throw InputError(concat(json.at("num_key_value_heads").where().str(), ": num_key_value_heads ", c.key_heads, " of ",
                            c.heads, " heads: every head of GPT-NeoX has keys of its own"));
  return c;
}

NeoxAttention::NeoxAttention(const LlamaConfig& c, std::int64_t index) : heads(c, index) {
  const std::int64_t width = c.heads * c.head_size;
  query_key_value = register_module("query_key_value", std::make_shared<Linear>(c.hidden, 3 * width, c.query_bias));
  dense = register_module("dense", std::make_shared<Linear>(width, c.hidden, c.output_bias));
}

at::Tensor NeoxAttention::forward(const at::Tensor& x, const LlamaContext& context) {
  const at::Tensor all = query_key_value->forward(x, context.between_layers());        // the heads that this rank has
  const at::Tensor by_head = all.view({all.size(0), all.size(1), -1, 3, heads.size});  // [B, T, H, 3, D]
  const std::int64_t first_head = nn::first_own(query_key_value->weight, 0) / (3 * heads.size);
  return dense->forward(
      heads.mixed(by_head.select(3, 0), by_head.select(3, 1), by_head.select(3, 2), context, first_head, is_training()),
      context.random);
}

std::string gpt_neox_tensor_name(const std::string& name, const Value& hf_config) {
  for (const char* buffer : {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(buffer)) return {};
  if (name != "lm_head.weight" && name != "embed_out.weight") return name;
  return flag(hf_config, "tie_word_embeddings", false) ? std::string() : "embed_out.weight";
}

}  // namespace tessera::models
