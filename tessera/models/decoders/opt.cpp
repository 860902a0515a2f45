#include <tessera/models/decoders/opt.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

#include <algorithm>

namespace tessera::models {
using config::flag, config::positive_or, config::positive_real, config::probability, config::require_object;

LlamaConfig parse_opt_config(const Value& json) {
  require_object(json);
  Value named = json;
  named.set("intermediate_size", json.at("ffn_dim"));
  LlamaConfig c = read_sizes(named, {.tied = true});
  if (positive_or(json, "word_embed_proj_dim", c.hidden) != c.hidden)
    throw InputError(concat(json.at("word_embed_proj_dim").where().str(), ": word_embed_proj_dim is not hidden_size ",
                            c.hidden, ": embeddings of another width (OPT-350m's) are not supported"));
  if (!flag(json, "do_layer_norm_before", true))
    throw InputError(concat(json.at("do_layer_norm_before").where().str(),
                            ": do_layer_norm_before false (norms behind the residual sums, OPT-350m's) is not "
                            "supported"));
  if (flag(json, "_remove_final_layer_norm", false))
    throw InputError(concat(json.at("_remove_final_layer_norm").where().str(),
                            ": _remove_final_layer_norm is not supported: the blocks end in a norm here"));
  const bool affine = flag(json, "layer_norm_elementwise_affine", true);
  c.norms = {.kind = NormKind::layer, .weight = affine, .bias = affine, .eps = 1e-5};
  c.gated = false;
  c.activation = read_activation(json, "activation_function", Activation::relu);
  c.query_bias = c.output_bias = c.mlp_bias = flag(json, "enable_bias", true);
  c.drops.attention = c.drops.mlp = probability(json, "dropout", 0.1);
  c.drops.embedding = probability(json, "embedding_dropout", 0);
  c.initializer_range = positive_real(json, "init_std", 0.02);
  c.names = layout::opt_names;
  c.learned_positions = true;
  c.position_offset = 2;
  std::ranges::fill(c.rotations, LayerRope::none);
  c.rope = {.dim = c.head_size, .max_positions = c.max_positions};
  return c;
}

std::string opt_tensor_name(const std::string& name, const Value& hf_config) {
  if (name == "lm_head.weight") return flag(hf_config, "tie_word_embeddings", true) ? std::string() : name;
  return name.starts_with("decoder.") ? "model." + name : name;
}

}  // namespace tessera::models
