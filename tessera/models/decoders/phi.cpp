#include <tessera/models/decoders/phi.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

namespace tessera::models {
using config::flag, config::positive_real, config::probability;

LlamaConfig parse_phi_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  c.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  c.gated = false;
  c.activation = read_activation(json, "hidden_act", Activation::gelu_tanh);
  c.residual = Residual::parallel_one;
  c.query_bias = c.output_bias = c.mlp_bias = true;
  if (c.tie_word_embeddings)
    throw InputError(concat(json.at("tie_word_embeddings").where().str(),
                            ": tie_word_embeddings is not supported: Phi's head has a bias and a matrix of its own"));
  c.head_bias = true;
  c.query_key_norm = flag(json, "qk_layernorm", false);
  const double residual = probability(json, "resid_pdrop", 0);
  c.drops = {.embedding = probability(json, "embd_pdrop", 0), .attention = residual, .mlp = residual};
  c.names = layout::phi_names;
  c.rope = parse_rope(json, c.head_size, c.max_positions, {.part = 0.5});
  return c;
}

}  // namespace tessera::models
