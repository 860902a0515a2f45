// GPT-NeoX (Black et al. 2022) and Pythia (transformers/models/gpt_neox): layer norms, parallel attention and MLP,
// partly rotated heads, one matrix for queries, keys and values.

#include <tessera/architectures/reading.h>

namespace tessera::architectures {
namespace {

void read_gpt_neox(const Value& json, ModelSpec& s) {
  read_sizes(json, s);
  s.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  s.gated = false;
  s.activation = read_activation(json, "hidden_act", Activation::gelu_erf);
  s.residual = flag(json, "use_parallel_residual", true) ? Residual::parallel : Residual::serial;
  s.query_bias = s.output_bias = flag(json, "attention_bias", true);
  s.mlp_bias = true;
  s.packing = Packing::heads;
  const double hidden = probability(json, "hidden_dropout", 0);
  s.drops = {.embedding = hidden, .attention = hidden, .mlp = hidden};
  s.names = {.model = "gpt_neox",
             .embedding = "embed_in",
             .norm = "final_layer_norm",
             .head = "embed_out",
             .attention = "attention",
             .output = "dense",
             .up = "dense_h_to_4h",
             .down = "dense_4h_to_h"};
  s.rope = parse_rope(json, s.head_size, s.positions,
                      {.part = 0.25, .theta_key = "rotary_emb_base", .part_key = "rotary_pct"});
  if (s.key_heads != s.heads)
    throw InputError(concat(json.at("num_key_value_heads").where().str(), ": num_key_value_heads ", s.key_heads, " of ",
                            s.heads, " heads: every head of GPT-NeoX has its own keys"));
}

/// The head is embed_out; transformers 5 calls it lm_head, and may write that name.
std::string gpt_neox_tensor_name(const std::string& name, const Value& config) {
  for (const char* buffer : {".attention.bias", ".attention.masked_bias", ".rotary_emb.inv_freq"})
    if (name.ends_with(buffer)) return {};
  if (name != "lm_head.weight" && name != "embed_out.weight") return name;
  return flag(config, "tie_word_embeddings", false) ? std::string() : "embed_out.weight";
}

}  // namespace

const Architecture gpt_neox = {"gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXLayer", read_gpt_neox, gpt_neox_tensor_name};

}  // namespace tessera::architectures
