#include <tessera/models/gpt2_config.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>
#include <cmath>

namespace tessera::models {
using config::flag, config::positive, config::positive_or, config::positive_real, config::probability,
    config::require_object;
double Gpt2Config::attention_scale(std::int64_t index) const {
  double scale = mup                  ? mup->score_scale(n_embd / n_head)
                 : scale_attn_weights ? 1 / std::sqrt(static_cast<double>(n_embd / n_head))
                                      : 1;
  if (scale_attn_by_inverse_layer_idx) scale /= static_cast<double>(index + 1);
  return scale;
}

Gpt2Config parse_gpt2_config(const Value& json) {
  require_object(json);
  Gpt2Config c{};
  c.n_layer = positive(json, "n_layer");
  c.n_embd = positive(json, "n_embd");
  c.n_head = positive(json, "n_head");
  c.n_positions = positive(json, !json.find("n_positions") && json.find("n_ctx") ? "n_ctx" : "n_positions");
  c.vocab_size = positive(json, "vocab_size");
  c.n_inner = positive_or(json, "n_inner", 4 * c.n_embd);
  c.activation = read_activation(json, "activation_function", Activation::gelu_tanh);
  c.resid_pdrop = probability(json, "resid_pdrop", 0.1);
  c.embd_pdrop = probability(json, "embd_pdrop", 0.1);
  c.attn_pdrop = probability(json, "attn_pdrop", 0.1);
  c.layer_norm_epsilon = positive_real(json, "layer_norm_epsilon", 1e-5);
  c.initializer_range = positive_real(json, "initializer_range", 0.02);
  c.tie_word_embeddings = flag(json, "tie_word_embeddings", true);
  c.scale_attn_weights = flag(json, "scale_attn_weights", true);
  c.scale_attn_by_inverse_layer_idx = flag(json, "scale_attn_by_inverse_layer_idx", false);
  c.mup = read_mup(json, c.n_embd);
  if (c.n_embd % c.n_head != 0)
    throw InputError(
        concat(json.at("n_embd").where().str(), ": n_embd ", c.n_embd, " is not a multiple of n_head ", c.n_head));
  if (flag(json, "add_cross_attention", false))
    throw InputError(concat(json.at("add_cross_attention").where().str(), ": add_cross_attention is not supported"));
  return c;
}

}  // namespace tessera::models
