// GPT-2 (Radford et al. 2019; transformers/models/gpt2).

#include <tessera/architectures/reading.h>

#include <cmath>

namespace tessera::architectures {
namespace {

void read_gpt2(const Value& json, ModelSpec& s) {
  s.layers = read_layers(json, "n_layer");
  s.hidden = positive(json, "n_embd");
  s.heads = s.key_heads = positive(json, "n_head");
  check_divides(json, "n_embd", s.hidden, "n_head", s.heads);
  s.head_size = s.hidden / s.heads;
  s.positions = positive(json, !json.find("n_positions") && json.find("n_ctx") ? "n_ctx" : "n_positions");
  s.vocabulary = positive(json, "vocab_size");
  s.inner = positive_or(json, "n_inner", 4 * s.hidden);
  s.gated = false;
  s.activation = read_activation(json, "activation_function", Activation::gelu_tanh);
  s.drops.attention = s.drops.mlp = probability(json, "resid_pdrop", 0.1);
  s.drops.embedding = probability(json, "embd_pdrop", 0.1);
  s.attention_dropout = probability(json, "attn_pdrop", 0.1);
  s.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_epsilon", 1e-5)};
  s.initializer_range = positive_real(json, "initializer_range", 0.02);
  s.tied = flag(json, "tie_word_embeddings", true);
  s.query_bias = s.output_bias = s.mlp_bias = true;
  if (flag(json, "scale_attn_weights", true)) s.score_scale = 1 / std::sqrt(static_cast<double>(s.head_size));
  s.scale_by_layer = flag(json, "scale_attn_by_inverse_layer_idx", false);
  s.position_rows = s.positions;
  s.names = {.model = "transformer", .embedding = "wte", .positions = "wpe", .norm = "ln_f"};
  refuse_flag(json, "add_cross_attention", " is not supported");
}

/// Folders saved from GPT2Model lack the prefix "transformer."; old ones contain causal masks.
std::string gpt2_tensor_name(const std::string& name, const Value& config) {
  if (name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias")) return {};
  if (name == "lm_head.weight") return tied_tensor_name(name, config);
  return name.starts_with("transformer.") ? name : "transformer." + name;
}

}  // namespace

const Architecture gpt2 = {.model_type = "gpt2",
                           .architecture = "GPT2LMHeadModel",
                           .hf_block = "GPT2Block",
                           .read = read_gpt2,
                           .tensor_name = gpt2_tensor_name,
                           .family = Family::gpt2,
                           .preset = R"({
  "activation_function": "gelu_new", "attn_pdrop": 0.0, "bos_token_id": 8191, "embd_pdrop": 0.0, "eos_token_id": 8191,
  "initializer_range": 0.02, "layer_norm_epsilon": 1e-5, "n_embd": 256, "n_head": 4, "n_inner": null, "n_layer": 4,
  "n_positions": 256, "reorder_and_upcast_attn": false, "resid_pdrop": 0.0, "scale_attn_by_inverse_layer_idx": false,
  "scale_attn_weights": true, "tie_word_embeddings": true, "torch_dtype": "float32", "use_cache": true,
  "vocab_size": 8192})"};

}  // namespace tessera::architectures
