#include <tessera/models/decoders/dense_decoders.h>

#include <tessera/base/error.h>
#include <tessera/config/model/config_value.h>

#include <algorithm>

namespace tessera::models {
using config::flag, config::given, config::positive, config::positive_or, config::positive_real, config::probability,
    config::refuse_other;
namespace {

void read_biases(const Value& json, LlamaConfig& c) {
  c.query_bias = c.output_bias = flag(json, "attention_bias", false);
  c.mlp_bias = flag(json, "mlp_bias", false);
}

void refuse_norms_of_heads(const Value& json) {
  if (flag(json, "qk_layernorm", false))
    throw InputError(concat(json.at("qk_layernorm").where().str(),
                            ": qk_layernorm (norms with weights for each head) is not supported"));
}

}  // namespace

LlamaConfig parse_granite_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  refuse_other(json, "hidden_act", {"silu"});
  read_biases(json, c);
  c.multipliers = {.embedding = positive_real(json, "embedding_multiplier", 1),
                   .residual = positive_real(json, "residual_multiplier", 1),
                   .logits = 1 / positive_real(json, "logits_scaling", 1)};
  c.score_scale = positive_real(json, "attention_multiplier", 1);
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  return c;
}

LlamaConfig parse_smollm3_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {.key_heads = 4, .tied = true});
  refuse_other(json, "hidden_act", {"silu"});
  read_biases(json, c);
  const Value* rotated = given(json, "no_rope_layers");  // 1 where a layer is rotated, whatever the name says
  if (rotated && static_cast<std::int64_t>(rotated->items().size()) < c.layers)
    throw InputError(concat(rotated->where().str(), ": no_rope_layers has ", rotated->items().size(), " entries for ",
                            c.layers, " layers"));
  const std::int64_t interval = positive_or(json, "no_rope_layer_interval", 4);
  const bool slides = flag(json, "use_sliding_window", false) && given(json, "sliding_window");
  for (std::int64_t i = 0; i < c.layers; ++i) {
    const auto index = static_cast<std::size_t>(i);
    const bool turns = rotated ? rotated->items()[index].as_int() != 0 : (i + 1) % interval != 0;
    if (turns) continue;
    c.rotations[index] = LayerRope::none;
    if (slides) c.windows[index] = positive(json, "sliding_window");
  }
  if (const Value* types = given(json, "layer_types"))
    c.windows = windows_of(*types, c.layers, positive_or(json, "sliding_window", 4096));
  c.rope = parse_rope(json, c.head_size, c.max_positions, {.theta = 2000000});
  return c;
}

LlamaConfig parse_arcee_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  read_biases(json, c);
  c.norms.eps = positive_real(json, "rms_norm_eps", 1e-5);
  c.gated = false;
  c.activation = read_activation(json, "hidden_act", Activation::relu_squared);
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  return c;
}

LlamaConfig parse_nemotron_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  read_biases(json, c);
  c.norms = {.kind = NormKind::layer, .bias = true, .from_one = true, .eps = positive_real(json, "norm_eps", 1e-5)};
  c.gated = false;
  c.activation = read_activation(json, "hidden_act", Activation::relu_squared);
  c.rope = parse_rope(json, c.head_size, c.max_positions, {.part = 0.5});
  return c;
}

LlamaConfig parse_stablelm_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {});
  refuse_other(json, "hidden_act", {"silu"});
  refuse_norms_of_heads(json);
  c.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "layer_norm_eps", 1e-5)};
  c.query_bias = flag(json, "use_qkv_bias", false);
  c.residual = flag(json, "use_parallel_residual", false) ? Residual::parallel_one : Residual::serial;
  c.drops.mlp = probability(json, "hidden_dropout", 0);
  c.rope = parse_rope(json, c.head_size, c.max_positions, {.part = 0.25});
  return c;
}

LlamaConfig parse_starcoder2_config(const Value& json) {
  LlamaConfig c = read_sizes(json, {.key_heads = 2, .tied = true});
  c.norms = {.kind = NormKind::layer, .bias = true, .eps = positive_real(json, "norm_epsilon", 1e-5)};
  c.gated = false;
  c.activation = read_activation(json, "hidden_act", Activation::gelu_tanh);
  c.query_bias = c.output_bias = c.mlp_bias = flag(json, "use_bias", true);
  c.initializer_range = positive_real(json, "initializer_range", 0.018042);
  const double residual = probability(json, "residual_dropout", 0);
  c.drops = {.embedding = probability(json, "embedding_dropout", 0), .attention = residual, .mlp = residual};
  c.names = layout::starcoder2_names;
  if (given(json, "sliding_window")) std::ranges::fill(c.windows, positive(json, "sliding_window"));
  c.rope = parse_rope(json, c.head_size, c.max_positions);
  return c;
}

}  // namespace tessera::models
